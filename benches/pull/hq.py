"""Seconds that HyperQueue takes for N tasks of /bin/true on SLOTS cores, its server and worker being up."""

import sys
import tempfile
import time

from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig

tasks, slots = int(sys.argv[1]), int(sys.argv[2])
with tempfile.TemporaryDirectory() as folder, LocalCluster() as cluster:
    cluster.start_worker(WorkerConfig(cores=slots))
    client = cluster.client()

    def run(n):
        job = Job(default_workdir=folder)
        for i in range(n):
            job.program(["/bin/true"], stdout=f"{folder}/{n}.{i}.out", stderr=f"{folder}/{n}.{i}.err")
        since = time.time()
        submitted = client.submit(job)
        client.wait_for_jobs([submitted])
        return time.time() - since

    run(10)
    print(run(tasks))
