// A run whose true times are known, as its hosts' clocks would have recorded it: for tests of alignment and for
// tests/bench/clock_accuracy.cpp, which measures the error of aligned times.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tracepp/clock/align.h"

namespace ms::tracepp::synthetic {

struct ClockRunOptions {
  int hosts = 4;
  int ranks_per_host = 1;
  int steps = 60;
  double span_s = 3600;        // the steps are spread over it
  double offset_s = 1;         // clocks differ by up to this, either way
  double drift_ppm = 100;      // and run faster or slower by up to this
  double wander_ppm = 0;       // and the drift swings by this, once in 40 minutes
  double jitter_us = 20;       // mean of what a message takes longer than it must, exponential
  double outliers = 0.05;      // share of the messages that are late by up to 2 ms, one way
  double probe_every_s = 60;   // 0: no probes
  int samples = 8;             // of a round
  int unprobed_host = -1;      // that no probe reaches
  int set_host = -1;           // whose clock jumps ahead by 0.3 s in the middle
  double wall_error_s = 5e-3;  // how far wall clocks are off; below 0: not known
  double transfer_us = 150;    // of a message, once all are there
  double end_jitter_us = 10;   // mean of how much later than that a rank notices its end, exponential
  bool world_group = true;     // all ranks meet once a step; otherwise only groups of 16 hosts, and pipelines
  std::uint64_t seed = 1;
};

struct ClockRun {
  explicit ClockRun(const ClockRunOptions& options);
  RunTrace trace;
  struct Times {
    std::int64_t begin_ns = 0, end_ns = 0;
  };
  std::vector<std::vector<Times>> truth;  // of each rank's events, on the first host's clock

  // By how much begins and ends in the trace are off, over all events of all ranks.
  struct Error {
    std::int64_t p50_ns = 0, p99_ns = 0, max_ns = 0;
  };
  Error error() const;
  Error error_of_host(const std::string& host) const;
  std::uint64_t violated() const;  // ends that precede what they waited for: counted the plain way

 private:
  Error error_where(const std::string* host) const;
};

}  // namespace ms::tracepp::synthetic
