-- The last conflicts of a key, as JSON (core/maintenance.py); empty: none.
ALTER TABLE record ADD COLUMN recent_conflicts BLOB NOT NULL DEFAULT x'';
