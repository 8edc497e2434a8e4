#include "sched/virtual_run.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/error.h"

namespace ms::sched {
namespace {

constexpr std::size_t kCompute = mesh::kChannels;  // the stream after those of the channels
constexpr std::size_t kStreams = kCompute + 1;

constexpr std::size_t index(Channel channel) { return static_cast<std::size_t>(channel); }

struct Span {
  double start = 0.0, end = 0.0;
};

struct Stream {
  std::vector<int> rows;  // in order of issue
  std::size_t done = 0;
  double free_at = 0.0;     // end of the last row done
  std::vector<Span> spans;  // of the rows done

  bool finished() const { return done == rows.size(); }
  int head() const { return rows[done]; }
};

struct Rank {
  std::array<Stream, kStreams> streams;
  std::vector<double> end;  // by row; negative: not yet
};

// Returns whether a send carries the tensor that its receive expects: the input of the next virtual stage, or the
// gradient of the previous stage's output.
bool carries(const Row& send, const Row& receive, int from, int to, int pp) {
  const int stage_from = send.chunk * pp + from;
  const int stage_to = receive.chunk * pp + to;
  const int step = send.action == Action::send_forward ? 1 : -1;
  return stage_to == stage_from + step && send.microbatch == receive.microbatch;
}

class Run {
 public:
  Run(const Schedule& schedule, const Waits& waits, const Times& times)
      : schedule_(schedule),
        waits_(waits),
        times_(times),
        pp_(static_cast<std::size_t>(schedule.shape.pp)),
        ranks_(pp_) {
    for (std::size_t r = 0; r < pp_; ++r) {
      const std::vector<Row>& rows = schedule.rows[r];
      ranks_[r].end.assign(rows.size(), -1.0);
      for (std::size_t i = 0; i < rows.size(); ++i) {
        if (rows[i].is_transfer()) {
          ranks_[r].streams[static_cast<std::size_t>(rows[i].channel)].rows.push_back(static_cast<int>(i));
        } else if (rows[i].is_compute()) {
          ranks_[r].streams[kCompute].rows.push_back(static_cast<int>(i));
        }
      }
    }
  }

  std::string match_channels() const {
    for (std::size_t from = 0; from < pp_; ++from) {
      for (const Channel out : {Channel::forward_out, Channel::backward_out}) {
        const std::size_t to = receiver(from, out);
        const std::vector<int>& sends = ranks_[from].streams[index(out)].rows;
        const std::vector<int>& receives = ranks_[to].streams[index(in_of(out))].rows;
        for (std::size_t k = 0; k < std::max(sends.size(), receives.size()); ++k) {
          if (k >= receives.size()) return fmt::format("{} is never received by rank {}", name(from, sends[k]), to);
          if (k >= sends.size()) return fmt::format("{} is never sent by rank {}", name(to, receives[k]), from);
          if (!carries(row(from, sends[k]), row(to, receives[k]), static_cast<int>(from), static_cast<int>(to),
                       schedule_.shape.pp)) {
            return fmt::format("{} meets {} on their channel, which expects something else", name(from, sends[k]),
                               name(to, receives[k]));
          }
        }
      }
    }
    return {};
  }

  // Until nothing moves. Which rank is looked at first changes nothing: a row's time follows from the rows it waits
  // for.
  std::string to_completion() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (std::size_t r = 0; r < pp_; ++r) {
        while (compute(r)) moved = true;
        for (const Channel out : {Channel::forward_out, Channel::backward_out}) {
          while (transfer(r, out)) moved = true;
        }
      }
    }
    return find_stuck();
  }

  double makespan() const {
    double last = 0.0;
    for (const Rank& rank : ranks_) {
      for (const Stream& stream : rank.streams) last = std::max(last, stream.free_at);
    }
    return last;
  }

  std::vector<double> take_ends(std::size_t r) { return std::move(ranks_[r].end); }

  // Sweeps over the starts and ends of a rank's rows. At one moment rows that took time end first, then rows start,
  // then rows that took no time end: so a transfer that is over at once still counts with what goes on around it.
  int at_once(std::size_t r) const {
    enum Phase { ends, starts, ends_at_once };
    struct Mark {
      double time;
      Phase phase;
      std::size_t stream;
      bool operator<(const Mark& other) const {
        return time < other.time || (time == other.time && phase < other.phase);
      }
    };
    std::vector<Mark> marks;
    for (std::size_t s = 0; s < kStreams; ++s) {
      for (const Span& span : ranks_[r].streams[s].spans) {
        marks.push_back({span.start, starts, s});
        marks.push_back({span.end, span.end > span.start ? ends : ends_at_once, s});
      }
    }
    std::sort(marks.begin(), marks.end());
    std::array<int, kStreams> active{};
    int most = 0;
    for (const Mark& mark : marks) {
      active[mark.stream] += mark.phase == starts ? 1 : -1;
      const auto streams = std::count_if(active.begin(), active.end(), [](int n) { return n > 0; });
      most = std::max(most, static_cast<int>(streams));
    }
    return most;
  }

 private:
  const Row& row(std::size_t r, int i) const { return schedule_.rows[r][static_cast<std::size_t>(i)]; }
  std::string name(std::size_t r, int i) const { return fmt::format("rank {} row {} ({})", r, i, cell(row(r, i))); }
  static Channel in_of(Channel out) { return out == Channel::forward_out ? Channel::forward_in : Channel::backward_in; }
  std::size_t receiver(std::size_t from, Channel out) const {
    return out == Channel::forward_out ? (from + 1) % pp_ : (from + pp_ - 1) % pp_;
  }

  // When the head of a stream can start; nothing while it waits.
  std::optional<double> ready(std::size_t r, const Stream& stream) const {
    if (stream.finished()) return std::nullopt;
    double time = stream.free_at;
    for (const int before : waits_[r][static_cast<std::size_t>(stream.head())]) {
      const double end = ranks_[r].end[static_cast<std::size_t>(before)];
      if (end < 0.0) return std::nullopt;
      time = std::max(time, end);
    }
    return time;
  }

  void finish(std::size_t r, Stream& stream, double start, double end) {
    ranks_[r].end[static_cast<std::size_t>(stream.head())] = end;
    stream.spans.push_back({start, end});
    stream.free_at = end;
    ++stream.done;
  }

  double duration(Action action) const {
    if (action == Action::forward) return times_.forward;
    if (action == Action::backward) return times_.backward;
    return times_.backward * (action == Action::backward_weight ? times_.weight_share : 1.0 - times_.weight_share);
  }

  bool compute(std::size_t r) {
    Stream& stream = ranks_[r].streams[kCompute];
    const auto start = ready(r, stream);
    if (!start) return false;
    finish(r, stream, *start, *start + duration(row(r, stream.head()).action) / schedule_.shape.chunks);
    return true;
  }

  bool transfer(std::size_t from, Channel out) {
    const std::size_t to = receiver(from, out);
    Stream& sender = ranks_[from].streams[index(out)];
    Stream& taker = ranks_[to].streams[index(in_of(out))];
    const auto sent = ready(from, sender);
    const auto taken = ready(to, taker);
    if (!sent || !taken) return false;
    const double end = std::max(*sent, *taken) + times_.transfer;
    finish(from, sender, *sent, end);
    finish(to, taker, *taken, end);
    return true;
  }

  // The row that holds up the first rank that is not done, and what it waits for.
  std::string find_stuck() const {
    for (std::size_t r = 0; r < pp_; ++r) {
      for (std::size_t s = kStreams; s-- > 0;) {  // computations say most
        const Stream& stream = ranks_[r].streams[s];
        if (stream.finished()) continue;
        const int stuck = stream.head();
        for (const int before : waits_[r][static_cast<std::size_t>(stuck)]) {
          if (ranks_[r].end[static_cast<std::size_t>(before)] < 0.0) {
            return fmt::format("deadlock: {} waits for row {} ({}), which never completes", name(r, stuck), before,
                               cell(row(r, before)));
          }
        }
        return fmt::format("deadlock: {} waits for its peer, which never gets there", name(r, stuck));
      }
    }
    return {};
  }

  const Schedule& schedule_;
  const Waits& waits_;
  const Times& times_;
  const std::size_t pp_;
  std::vector<Rank> ranks_;
};

}  // namespace

std::string deadlock_when_late(const Schedule& schedule, Waits waits) {
  for (std::size_t rank = 0; rank < waits.size(); ++rank) {
    int computation = -1;
    for (std::size_t i = 0; i < waits[rank].size(); ++i) {
      if (computation >= 0) waits[rank][i].push_back(computation);
      if (schedule.rows[rank][i].is_compute()) computation = static_cast<int>(i);
    }
  }
  return Run(schedule, waits, {}).to_completion();
}

VirtualRun run_in_virtual_time(const Schedule& schedule, const Waits& waits, const Times& times) {
  VirtualRun result;
  Run run(schedule, waits, times);
  result.problem = run.match_channels();
  if (result.problem.empty()) result.problem = run.to_completion();
  if (!result.problem.empty()) return result;
  result.makespan = run.makespan();
  for (std::size_t r = 0; r < schedule.rows.size(); ++r) {
    result.at_once.push_back(run.at_once(r));
    result.end.push_back(run.take_ends(r));
  }
  return result;
}

}  // namespace ms::sched
