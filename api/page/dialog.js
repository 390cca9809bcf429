// The one dialog of the page: it asks, or it shows.

import { byId, el, setText } from "./dom.js";

// Resolves to true when `yes` was pressed; Escape and Cancel are no. The dialog gives the focus back where it was.
export function ask({ title, body, yes, isHarsh = false }) {
  const dialog = byId("dialog");
  if (dialog.open) dialog.close();
  setText(byId("dialog-title"), title);
  byId("dialog-body").replaceChildren(...body);
  const button = byId("dialog-yes");
  setText(button, yes);
  button.className = isHarsh ? "harsh" : "";
  byId("dialog-no").hidden = yes === "Close";
  byId("dialog-no").onclick = () => dialog.close("no");
  dialog.returnValue = "no";
  dialog.showModal();
  (dialog.querySelector("input, select") ?? button).focus();
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }));
}

export const tell = (title, ...body) => ask({ title, body, yes: "Close" });

export const line = (text) => el("p", {}, text);
