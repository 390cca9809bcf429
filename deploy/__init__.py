"""Running a fleet, on one machine or in a cluster. Never imports worker or api: it starts them as processes."""
