// From samples to lines. A sample of a probe is off by at most half of what its round trip took longer than the
// shortest one (plus what the way there differs from the way back, which cannot be measured), so it weighs by the
// square of that: a few lucky ones decide, as with a convex hull, and a late answer costs nothing.
#include "tracepp/clock/fit.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <span>
#include <tuple>

#include "tracepp/robust.h"

namespace ms::tracepp {
namespace {

constexpr double kMaxDrift = 200e-6;     // of clocks that work: quartz is within 100 ppm
constexpr double kSet = 1e6;             // ns: a clock that is off by more than this all at once was set
constexpr double kSteepest = 500e-6;     // a line beyond this drift is no clock: kernels slew by no more
constexpr double kFloorNs = 300;         // how exact a perfect sample is
constexpr std::size_t kMaxPoints = 512;  // of a link; more are thinned out
constexpr std::size_t kMinPiece = 3;     // points that a piece of a line needs
constexpr double kBend = 15;             // how many times better two lines must be than one
constexpr int kSweeps = 5;               // of reweighting; it has settled by then
constexpr double kHuber = 2;             // deviations from which on a point is doubted

struct Point {
  double x = 0, y = 0;  // ns from the first point: clock, shift
  double variance = 1;
};
struct Line {
  double x0 = 0, y0 = 0, drift = 0;
  double operator()(double x) const { return y0 + drift * (x - x0); }
};

// Sums for weighted least squares; ranges are differences of them.
struct Sums {
  double w = 0, x = 0, y = 0, xx = 0, xy = 0, yy = 0;
  void add(const Point& p, double weight) {
    w += weight;
    x += weight * p.x;
    y += weight * p.y;
    xx += weight * p.x * p.x;
    xy += weight * p.x * p.y;
    yy += weight * p.y * p.y;
  }
  Sums operator-(const Sums& o) const { return {w - o.w, x - o.x, y - o.y, xx - o.xx, xy - o.xy, yy - o.yy}; }
  Line line() const {
    const double mx = x / w, my = y / w, vx = xx / w - mx * mx;
    return {mx, my, vx > 1 ? (xy / w - mx * my) / vx : 0};
  }
  double misfit() const {
    const double mx = x / w, my = y / w, vx = xx / w - mx * mx, cxy = xy / w - mx * my;
    return w * std::max(0.0, yy / w - my * my - (vx > 1 ? cxy * cxy / vx : 0));
  }
};

// Fits a Theil-Sen line. Pairs each point with the one half of all points later, which is as robust and takes linear
// time.
Line first_line(std::span<const Point> points) {
  const std::size_t n = points.size(), half = (n + 1) / 2;
  std::vector<double> values;
  for (std::size_t i = 0; i + half < n; ++i) {
    const double dx = points[i + half].x - points[i].x;
    if (dx > 0) values.push_back((points[i + half].y - points[i].y) / dx);
  }
  const double drift = median(values);
  values.clear();
  for (const Point& p : points) values.push_back(p.y - drift * p.x);
  return {0, median(values), drift};
}

struct Fit {
  Line line;
  double deviation = 0;
};
Fit robust_line(std::span<const Point> points) {
  Fit fit{first_line(points), 0};
  Sums sums;
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    std::vector<double> off;
    for (const Point& p : points) off.push_back(std::abs(p.y - fit.line(p.x)) / std::sqrt(p.variance));
    const double scale = std::max(1.0, 1.5 * median(off));
    sums = {};
    for (const Point& p : points) {
      const double doubt = std::abs(p.y - fit.line(p.x)) / std::sqrt(p.variance) / (kHuber * scale);
      sums.add(p, 1 / (p.variance * scale * scale * std::max(1.0, doubt)));
    }
    fit.line = sums.line();
    fit.line.drift = std::clamp(fit.line.drift, -kSteepest, kSteepest);
  }
  fit.deviation = std::sqrt(1 / sums.w);
  return fit;
}

// Returns how many times more the points scatter than their variances predict; at least 1. Each point is compared with
// the line between its neighbours, which a bend does not spoil.
double scatter(std::span<const Point> points) {
  std::vector<double> squares;
  for (std::size_t i = 1; i + 1 < points.size(); ++i) {
    const Point &a = points[i - 1], &b = points[i], &c = points[i + 1];
    if (c.x <= a.x) continue;
    const double f = (b.x - a.x) / (c.x - a.x), off = b.y - a.y - f * (c.y - a.y);
    squares.push_back(off * off / (b.variance + (1 - f) * (1 - f) * a.variance + f * f * c.variance));
  }
  constexpr double kMedianOfSquares = 0.455;  // of a normal variable
  return squares.empty() ? 1 : std::max(1.0, median(squares) / kMedianOfSquares);
}

// Finds the places where two lines fit much better than one: splits at the best place and searches both sides again.
void find_bends(std::span<const Point> points, double noise, std::size_t first, std::vector<std::size_t>& bends) {
  const std::size_t n = points.size();
  if (n < 2 * kMinPiece) return;
  std::vector<Sums> sums(n + 1);
  const Line middle = first_line(points);  // numbers stay small around it
  for (std::size_t i = 0; i < n; ++i) {
    sums[i + 1] = sums[i];
    sums[i + 1].add({points[i].x - points[0].x, points[i].y - middle(points[i].x), 0}, 1 / points[i].variance);
  }
  double best = HUGE_VAL;
  std::size_t at = 0;
  for (std::size_t k = kMinPiece; k + kMinPiece <= n; ++k) {
    const double two = sums[k].misfit() + (sums[n] - sums[k]).misfit();
    if (two < best) best = two, at = k;
  }
  if ((sums[n].misfit() - best) / 2 < kBend * noise) return;
  find_bends(points.first(at), noise, first, bends);
  bends.push_back(first + at);
  find_bends(points.subspan(at), noise, first + at, bends);
}

// Returns the points of a link, at most kMaxPoints: of probes the best sample of each stretch of rounds, of collectives
// the sample with the median shift of each stretch of time.
std::vector<Point> points_of(const ClockLink& link, std::size_t from, const ClockSample& zero) {
  const bool is_a = from == link.a;
  std::vector<ClockSample> samples = link.samples;
  const auto own = [&](const ClockSample& s) { return is_a ? s.a_ns : s.b_ns; };
  const auto shift = [&](const ClockSample& s) { return is_a ? s.b_ns - s.a_ns : s.a_ns - s.b_ns; };
  std::ranges::sort(samples, [&](const ClockSample& l, const ClockSample& r) {
    return std::tuple(own(l), l.error_ns) < std::tuple(own(r), r.error_ns);
  });
  const bool probes = link.source == ClockSource::probes;
  std::int64_t least = samples.front().error_ns;
  for (const ClockSample& s : samples) least = std::min(least, s.error_ns);
  std::size_t stretches = samples.size();
  if (probes) {  // rounds follow each other in time
    stretches = 1;
    for (std::size_t i = 1; i < samples.size(); ++i) stretches += samples[i].round != samples[i - 1].round;
  }
  const std::size_t a_point = (stretches + kMaxPoints - 1) / kMaxPoints;
  std::vector<Point> points;
  for (std::size_t i = 0; i < samples.size();) {
    std::size_t end = i, rounds = 0;
    while (end < samples.size()) {
      const bool next = !probes || end == i || samples[end].round != samples[end - 1].round;
      if (next && rounds++ == a_point) break;
      ++end;
    }
    const auto stretch = std::span(samples).subspan(i, end - i);
    if (probes) {
      const ClockSample& best = *std::ranges::min_element(stretch, {}, &ClockSample::error_ns);
      const double excess = static_cast<double>(best.error_ns - least) / std::sqrt(3.0);
      points.push_back({static_cast<double>(own(best) - own(zero)), static_cast<double>(shift(best) - shift(zero)),
                        excess * excess + kFloorNs * kFloorNs});
    } else {
      const auto middle = stretch.begin() + static_cast<std::ptrdiff_t>(stretch.size() / 2);
      std::ranges::nth_element(stretch, middle, {}, shift);
      points.push_back({static_cast<double>(own(*middle) - own(zero)),
                        static_cast<double>(shift(*middle) - shift(zero)), kFloorNs * kFloorNs});
    }
    i = end;
  }
  std::ranges::sort(points, {}, &Point::x);
  // The shortest round trip was not the shortest possible either; by about as much as the next ones are longer. Where
  // there are none, the truth may lie anywhere in it.
  if (probes) {
    double floor = static_cast<double>(least) * static_cast<double>(least) / 3;
    if (points.size() > 2) {
      std::vector<double> variances;
      for (const Point& p : points) variances.push_back(p.variance);
      std::ranges::nth_element(variances, variances.begin() + 2);
      floor = variances[2];
    }
    for (Point& p : points) p.variance += floor;
  }
  return points;
}

double slope(double x0, double y0, double x1, double y1) {
  return std::clamp((y1 - y0) / std::max(1.0, x1 - x0), -kSteepest, kSteepest);
}

// The best samples of the first third of the time and of the last: a line can be no more wrong between them than it is
// at one of them.
struct Anchors {
  ClockSample early, late;
};
Anchors anchors_of(const std::vector<ClockSample>& samples) {
  const auto [first, last] = std::ranges::minmax(samples, {}, &ClockSample::a_ns);
  const std::int64_t third = (last.a_ns - first.a_ns) / 3;
  Anchors best{first, last};
  for (const ClockSample& s : samples) {
    if (s.a_ns <= first.a_ns + third && s.error_ns < best.early.error_ns) best.early = s;
    if (s.a_ns >= last.a_ns - third && s.error_ns < best.late.error_ns) best.late = s;
  }
  return best;
}

// Bounds the clock's error between the two anchors. The error at an anchor is that of its sample plus the distance of
// the map from the sample; the larger of the two is the bound.
void bound(FittedClock& clock, const ClockLink& link, std::size_t from) {
  const bool is_a = from == link.a;
  const auto own = [&](const ClockSample& s) { return is_a ? s.a_ns : s.b_ns; };
  const auto off = [&](const ClockSample& s) {
    const std::int64_t other = is_a ? s.b_ns : s.a_ns;
    return static_cast<double>(std::abs(clock.to_root(own(s)) - other) + s.error_ns);
  };
  Anchors at = anchors_of(link.samples);
  if (clock.drift_error >= kMaxDrift) {
    const ClockSample& nearest = at.early.error_ns < at.late.error_ns ? at.early : at.late;
    at = {nearest, nearest};
  }
  clock.first_ns = own(at.early);
  clock.last_ns = own(at.late);
  clock.bound_ns = std::max(off(at.early), off(at.late));
}

}  // namespace

double drift_error(const ClockLink& link) {
  const auto [early, late] = anchors_of(link.samples);
  if (late.a_ns <= early.a_ns) return kMaxDrift;
  const double error_ns = static_cast<double>(early.error_ns + late.error_ns);
  return std::min(kMaxDrift, error_ns / static_cast<double>(late.a_ns - early.a_ns));
}

double ClockLink::error_ns() const {
  return static_cast<double>(std::ranges::min_element(samples, {}, &ClockSample::error_ns)->error_ns) + beyond_ns;
}

FittedClock fit_link(const ClockLink& link, std::size_t from) {
  const ClockSample zero = link.samples.front();
  const std::int64_t x0 = from == link.a ? zero.a_ns : zero.b_ns;
  const std::int64_t y0 = (from == link.a ? zero.b_ns : zero.a_ns) - x0;
  const std::vector<Point> points = points_of(link, from, zero);
  FittedClock clock{.to_root = {}, .source = link.source, .drift_error = drift_error(link)};
  const auto time = [&](double x) { return x0 + std::llround(x); };

  std::vector<std::size_t> starts{0};
  find_bends(points, scatter(points), 0, starts);
  starts.push_back(points.size());
  std::vector<Line> lines;
  for (std::size_t p = 0; p + 1 < starts.size(); ++p) {
    Fit fit = robust_line(std::span(points).subspan(starts[p], starts[p + 1] - starts[p]));
    if (clock.drift_error >= kMaxDrift) fit.line.drift = 0;  // too short to tell a drift
    clock.deviation_ns = std::max(clock.deviation_ns, fit.deviation);
    lines.push_back(fit.line);
  }
  // Lines that meet between their points bend there. Others bend half-way between them, as a curve does
  // that no line fits well, unless they are too far apart there: then the clock was set.
  std::vector<ClockMap::Piece> pieces(lines.size());
  double knot_x = 0, knot_y = 0;
  for (std::size_t p = 0; p < lines.size(); ++p) {
    const auto through = [&](double x, double y, double drift) {
      pieces[p].at_ns = time(x);
      pieces[p].shift_ns = y0 + std::llround(y);
      pieces[p].drift = drift;
    };
    if (p == 0) {
      through(lines[p].x0, lines[p].y0, lines[p].drift);
      continue;
    }
    const Line &before = lines[p - 1], &line = lines[p];
    const double left = points[starts[p] - 1].x, right = points[starts[p]].x, middle = (left + right) / 2;
    double x = (line(0) - before(0)) / (before.drift - line.drift);
    if (!std::isfinite(x) || x < left || x > right) x = middle;
    through(line.x0, line.y0, line.drift);
    pieces[p].from_ns = std::max(time(x), p > 1 ? pieces[p - 1].from_ns + 1 : time(x));
    if (std::abs(line(x) - before(x)) > kSet) {
      pieces[p].set_after_ns = time(left);
      pieces[p].set_before_ns = time(right);
      continue;
    }
    // The knot, where the piece before ends; both pieces turn about their other knot, or their farthest point.
    const double y = (line(x) + before(x)) / 2;
    ClockMap::Piece& last = pieces[p - 1];
    const double other = p > 1 && last.set_before_ns == last.set_after_ns ? knot_x : points[starts[p - 1]].x;
    const double at_other = p > 1 && last.set_before_ns == last.set_after_ns ? knot_y : before(other);
    last.at_ns = time(other);
    last.shift_ns = y0 + std::llround(at_other);
    last.drift = slope(other, at_other, x, y);
    const double far = points[starts[p + 1] - 1].x;
    through(x, y, slope(x, y, far, line(far)));
    knot_x = x;
    knot_y = y;
  }
  clock.to_root = ClockMap(std::move(pieces));
  bound(clock, link, from);
  return clock;
}

}  // namespace ms::tracepp
