"""Running where the work is: on a Ray cluster, through its job server, under Slurm or on Kubernetes.

address   what ``--address`` means
package   what travels with a job: the config and the user's files
jobs      a cluster's job server: submit, list, follow, stop; the only module here that talks to Ray
machines  the nodes that a plan asks a scheduler for
slurm     the batch script for them
kuberay   the manifest for them
"""
