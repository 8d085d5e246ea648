"""What a DAG can ask of endpoints."""
