"""Pages in the user interface of Airflow: live transfers, and the deadline plan of a DAG run.

The pages only read. All calls to endpoints start at the API server, with Airflow's connections.
"""
