"""Framework contracts: the environment each framework expects. Pure: env(plan, proc)."""
