// Process 1 of each pod: keeps the pod's namespaces alive, reaps what its containers orphan, ends on SIGTERM.
#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

static void on_signal(int which) {
  if (which != SIGCHLD) _exit(0);
  while (waitpid(-1, NULL, WNOHANG) > 0) continue;
}

int main(void) {
  const int wanted[] = {SIGTERM, SIGINT, SIGCHLD};
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) signal(wanted[i], on_signal);
  while (1) pause();
}
