-- reap: take expired leases away, as a release `fail` with the reason "lease expired".
-- with: keys clock wake groups leases attempts
-- flags: allow-oom
--
-- KEYS the run's keys (parts/keys.lua)
-- ARGV the most to reap in this call
--
-- number of leases reaped; fewer than the most: none is left
if not cfg.n then
  return 0
end
return reap(ARGV[1], run_clock(cfg.lease_ms))
