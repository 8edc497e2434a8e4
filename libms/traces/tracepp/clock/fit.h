// Models how the clocks of a run's hosts relate, from comparisons of two clocks at a time: probes, or the ends of
// collectives. A comparison gives a sample; the samples of two clocks give a line, or pieces of lines if the drift
// bends or a clock was set; the lines make a tree over the hosts, along which every clock maps to the root's. align.h
// calls it. Pure.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tracepp/run_trace.h"

namespace ms::tracepp {

// The shift from the times of one clock to another's. Never reverses the order of two times.
class ClockMap {
 public:
  struct Piece {
    std::int64_t from_ns = 0;              // of the clock that is mapped; the first piece reaches back for ever
    std::int64_t at_ns = 0, shift_ns = 0;  // the line: at this time this shift,
    double drift = 0;                      // and so much more for every nanosecond after
    std::int64_t least_ns = kNoLeast;      // lower bound of its results: the last result of the piece before
    std::int64_t shift(std::int64_t t) const;
    static constexpr std::int64_t kNoLeast = std::numeric_limits<std::int64_t>::min();
    // The interval between two samples in which the clock was set. Equal: it was not set.
    std::int64_t set_after_ns = 0, set_before_ns = 0;
  };
  ClockMap() = default;  // the same clock
  explicit ClockMap(std::vector<Piece> pieces) : pieces_(std::move(pieces)) { keep_order(); }
  bool is_identity() const { return pieces_.empty(); }
  std::int64_t shift(std::int64_t t) const;
  std::int64_t operator()(std::int64_t t) const { return t + shift(t); }
  double drift(std::int64_t t) const;
  const std::vector<Piece>& pieces() const { return pieces_; }
  void begin_piece_at(std::size_t piece, std::int64_t from_ns);  // not the first; between its neighbours
  // A correction of the result: a line over this clock's times.
  void add(std::int64_t at_ns, double shift_ns, double drift);
  // Returns the map that applies this one, then `next`.
  ClockMap then(const ClockMap& next) const;

 private:
  const Piece& piece(std::int64_t t) const;
  void keep_order();
  std::vector<Piece> pieces_;
};

enum class ClockSource : std::uint8_t { root, probes, collectives, wall, none };
std::string_view to_string(ClockSource source);

// Two clocks at one moment, and the possible error.
struct ClockSample {
  std::int64_t a_ns = 0, b_ns = 0;
  std::int64_t error_ns = 0;
  std::uint32_t round = 0;  // of probes: of one round the best sample counts
};
struct ClockLink {
  std::size_t a = 0, b = 0;  // clocks
  ClockSource source = ClockSource::probes;
  std::vector<ClockSample> samples;
  double beyond_ns = 0;     // how far off it may lead at the ends of the run, which its samples do not reach
  double error_ns() const;  // of the best sample, and that
};

// Returns the possible error of the drift of a line through the two ends of these samples: at most the drift of a
// working clock, which is also the result for samples too close in time.
double drift_error(const ClockLink& link);

// The fitted map of a clock and its errors.
struct FittedClock {
  ClockMap to_root;
  ClockSource source = ClockSource::none;
  double bound_ns = 0;                     // what the samples allow it to be off from first_ns to last_ns; 0: not known
  double deviation_ns = 0;                 // what it is expected to be off there
  double drift_error = 0;                  // by how much the drift may be off; 200 ppm where it could not be measured
  std::int64_t first_ns = 0, last_ns = 0;  // of the samples that bound it, on its own clock
  // How far its map may be off at a time, and is expected to be.
  double bound_at(std::int64_t t) const;
  double deviation_at(std::int64_t t) const;
};

// The clock that each rank reads: one per host, unless the ranks' wall clock times show that it was rebooted in
// between. Ranks without a known host have a clock each.
struct RunClocks {
  struct Clock {
    std::string host;
    std::size_t first_rank = 0;  // index in RunTrace::ranks
    std::size_t ranks = 0;
    bool has_wall = false;
    std::int64_t wall_ns = 0;  // wall's clock less this one
  };
  std::vector<std::size_t> of_rank;  // by index in RunTrace::ranks
  std::vector<Clock> clocks;         // in order of first_rank: 0 is the root, unless fit_clocks says otherwise
};
RunClocks clocks_of(const RunTrace& trace);

// Returns the links that probes make. `sure`: they cover the run, so nothing has to be extrapolated. Contradictory
// probes are left out and counted.
struct ProbeLinks {
  std::vector<ClockLink> sure, others;
  std::uint64_t bad_probes = 0;
};
ProbeLinks probe_links(const RunTrace& trace, const RunClocks& clocks);

// Fits the map from one clock to another over one link from its samples. `from` is link.a or link.b.
FittedClock fit_link(const ClockLink& link, std::size_t from);

// Fits all clocks' maps to clock 0, or to one with links if that has none, each over the tree of links with the
// smallest error: first over `sure` links, then, for clocks not reached, over all. Clocks that are not reached use the
// wall clock, if it is known.
std::vector<FittedClock> fit_clocks(const RunClocks& clocks, const std::vector<ClockLink>& sure,
                                    const std::vector<ClockLink>& others);

}  // namespace ms::tracepp
