-- For how long a change waits before it is acknowledged: never for less than any process has a lease. While the lease time
-- is lowered, it is longer. Change both by `latchkey lease` alone: see docs/decisions/0030-the-lease-time-changes-online.md.
alter table lease add column wait_ms integer not null default 250;
update lease set wait_ms = lease_ms;
alter table lease add constraint changes_wait_for_leases check (wait_ms between lease_ms and 5000);
