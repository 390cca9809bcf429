"""What people do with a fleet in a cluster, with the rights of their own kubeconfig."""
