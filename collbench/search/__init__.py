"""The search: A/A, ask and tell, shortlist, ablation; then the confirmation. See docs/search.md."""
