"""Job profiles: what training jobs measure, fitted to the functions that the three problems are stated in."""
