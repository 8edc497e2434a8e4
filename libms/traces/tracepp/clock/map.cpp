// Implements ClockMap of fit.h: pieces of lines, and their composition.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "tracepp/clock/fit.h"

namespace ms::tracepp {

std::string_view to_string(ClockSource source) {
  switch (source) {
    case ClockSource::root: return "root";
    case ClockSource::probes: return "probes";
    case ClockSource::collectives: return "collectives";
    case ClockSource::wall: return "wall clock";
    case ClockSource::none: break;
  }
  return "none";
}

std::int64_t ClockMap::Piece::shift(std::int64_t t) const {
  const std::int64_t line = shift_ns + std::llround(drift * static_cast<double>(t - at_ns));
  return least_ns == kNoLeast ? line : std::max(line, least_ns - t);
}

void ClockMap::keep_order() {
  for (std::size_t p = 1; p < pieces_.size(); ++p) {
    const std::int64_t last = pieces_[p].from_ns - 1;
    pieces_[p].least_ns = last + pieces_[p - 1].shift(last);
  }
}

const ClockMap::Piece& ClockMap::piece(std::int64_t t) const {
  std::size_t p = pieces_.size() - 1;
  while (p > 0 && t < pieces_[p].from_ns) --p;
  return pieces_[p];
}

std::int64_t ClockMap::shift(std::int64_t t) const { return is_identity() ? 0 : piece(t).shift(t); }
double ClockMap::drift(std::int64_t t) const { return is_identity() ? 0 : piece(t).drift; }

void ClockMap::begin_piece_at(std::size_t piece, std::int64_t from_ns) {
  pieces_[piece].from_ns = from_ns;
  keep_order();
}

void ClockMap::add(std::int64_t at_ns, double shift_ns, double drift) {
  if (is_identity()) pieces_.push_back({});
  for (Piece& piece : pieces_) {
    piece.shift_ns += std::llround(shift_ns + drift * static_cast<double>(piece.at_ns - at_ns));
    piece.drift += drift;
  }
  keep_order();
}

ClockMap ClockMap::then(const ClockMap& next) const {
  if (is_identity()) return next;
  if (next.is_identity()) return *this;
  const auto line = [](Piece piece, std::int64_t t) {
    piece.least_ns = Piece::kNoLeast;
    return piece.shift(t);
  };
  struct Start {
    std::int64_t from_ns, set_after_ns, set_before_ns;
  };
  std::vector<Start> starts;
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const Piece& mine = pieces_[i];
    if (i > 0) starts.push_back({mine.from_ns, mine.set_after_ns, mine.set_before_ns});
    // When this clock shows what makes the other show `t`; the drift is far below 1, so one correction is enough.
    const auto when = [&](std::int64_t t) { return t - line(mine, t - line(mine, t)); };
    for (std::size_t k = 1; k < next.pieces_.size(); ++k) {
      const Piece& theirs = next.pieces_[k];
      const std::int64_t from = when(theirs.from_ns);
      if ((i > 0 && from <= mine.from_ns) || (i + 1 < pieces_.size() && from >= pieces_[i + 1].from_ns)) continue;
      const bool set = theirs.set_before_ns > theirs.set_after_ns;
      starts.push_back({from, set ? when(theirs.set_after_ns) : 0, set ? when(theirs.set_before_ns) : 0});
    }
  }
  std::ranges::sort(starts, {}, &Start::from_ns);
  const auto at = [&](std::int64_t t) {  // t: well inside the piece
    const Piece& mine = piece(t);
    const std::int64_t between = mine.at_ns + mine.shift_ns;
    const Piece& theirs = next.piece(t + line(mine, t));
    return Piece{.at_ns = mine.at_ns,
                 .shift_ns = mine.shift_ns + line(theirs, between),
                 .drift = mine.drift + theirs.drift * (1 + mine.drift)};
  };
  constexpr std::int64_t kInside = 1'000'000;
  std::vector<Piece> pieces{at(starts.empty() ? pieces_.front().at_ns : starts.front().from_ns - kInside)};
  for (std::size_t s = 0; s < starts.size(); ++s) {
    const std::int64_t from = starts[s].from_ns;
    Piece piece = at(s + 1 < starts.size() ? std::midpoint(from, starts[s + 1].from_ns) : from + kInside);
    piece.from_ns = from;
    piece.set_after_ns = starts[s].set_after_ns;
    piece.set_before_ns = starts[s].set_before_ns;
    pieces.push_back(piece);
  }
  return ClockMap(std::move(pieces));
}

double FittedClock::bound_at(std::int64_t t) const {
  const std::int64_t outside = std::max({first_ns - t, t - last_ns, std::int64_t{0}});
  return bound_ns + drift_error * static_cast<double>(outside);
}
double FittedClock::deviation_at(std::int64_t t) const {
  const std::int64_t outside = std::max({first_ns - t, t - last_ns, std::int64_t{0}});
  return std::hypot(deviation_ns, drift_error * static_cast<double>(outside));
}

}  // namespace ms::tracepp
