"""A seeded simulator of whole jobs: real Membership and Supervisors, simulated everything else."""
