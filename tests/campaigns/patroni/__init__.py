"""A ledger over three sites: etcd, Patroni and PostgreSQL in each, and the site of the primary killed under load."""
