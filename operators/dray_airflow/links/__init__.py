"""The link from a task's page in Airflow to its transfer."""
