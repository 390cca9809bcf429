"""The routes, by subject. Each asks the service and answers with a model; what decides lies elsewhere."""
