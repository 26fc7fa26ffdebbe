"""Many machines at a glance, from what their sweeps, benches and checks left in a folder."""
