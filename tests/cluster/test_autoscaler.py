"""KEDA's half: a real HorizontalPodAutoscaler reads the fleet's one number, as KEDA would hand it on; and GPUs."""

from pathlib import Path

import pytest

from tests.cluster.crds import apply_crd
from tests.cluster.jobs import Job
from tests.cluster.kube import Json, apply, command, image, kubectl
from tests.cluster.release import Release

pytestmark = pytest.mark.slow

STUB = Path(__file__).with_name("metrics_stub.py")
GROUP = "external.metrics.k8s.io"


async def test_an_autoscaler_follows_the_number_of_wanted_workers(release: Release, job: Job, tmp_path: Path) -> None:
    await apply_crd("keda.sh", "v1alpha1", "ScaledObject", "scaledobjects")
    scaling = {"owner": "keda", "minWorkers": 1, "maxWorkers": 3, "cooldownSeconds": 5}
    await release.install({"worker": {"replicas": 1}, "scaling": scaling, "api": {"enabled": True}})
    await start_stub(release, tmp_path)
    try:
        await apply(autoscaler(release))
        await job.submit(90)
        async with job.training():
            await release.workers_ready(3)
            await job.finished()
            await release.workers_ready(1)
        await job.assert_whole()
    finally:
        await kubectl("delete", "apiservice", f"v1beta1.{GROUP}", "--ignore-not-found")


async def start_stub(release: Release, folder: Path) -> None:
    """Serves external.metrics.k8s.io out of /desired_workers, in a pod of the fleet's own image."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    made = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1", "-subj", "/CN=stub")
    await command("openssl", "req", "-x509", *made, "-keyout", str(key), "-out", str(certificate))
    files = (f"--from-file={path}" for path in (STUB, key, certificate))
    await kubectl("create", "configmap", "stub", "-n", release.namespace, *files)
    metadata = {"name": "stub", "namespace": release.namespace}
    url = f"http://{release.base}-api:8000/desired_workers?run={release.run}"
    container: Json = {
        "name": "stub",
        "image": image(),
        "command": ["python", f"/stub/{STUB.name}", url],
        "readinessProbe": {"tcpSocket": {"port": 6443}, "periodSeconds": 1},
        "volumeMounts": [{"name": "stub", "mountPath": "/stub"}],
    }
    spec: Json = {
        "containers": [container],
        "volumes": [{"name": "stub", "configMap": {"name": "stub"}}],
        "terminationGracePeriodSeconds": 0,
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata | {"labels": {"app": "stub"}}, "spec": spec}
    ports = {"selector": {"app": "stub"}, "ports": [{"port": 443, "targetPort": 6443}]}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": ports}
    registered: Json = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": f"v1beta1.{GROUP}"},
        "spec": {
            "group": GROUP,
            "version": "v1beta1",
            "service": metadata,
            "insecureSkipTLSVerify": True,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
        },
    }
    await apply(pod, service, registered)
    await kubectl("wait", "--for=condition=Available", f"apiservice/v1beta1.{GROUP}", "--timeout=120s")


def autoscaler(release: Release) -> Json:
    """As KEDA makes it from the chart's ScaledObject: one external metric, an average of 1 for each worker."""
    metric = {"metric": {"name": "wanted"}, "target": {"type": "AverageValue", "averageValue": "1"}}
    quick = {"stabilizationWindowSeconds": 0, "tolerance": "0"}
    spec: Json = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": release.deployment},
        "minReplicas": 1,
        "maxReplicas": 3,
        "metrics": [{"type": "External", "external": metric}],
        "behavior": {"scaleUp": quick, "scaleDown": quick},
    }
    metadata = {"name": "wanted", "namespace": release.namespace}
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata, "spec": spec}
