"""What `allranks init` writes."""
