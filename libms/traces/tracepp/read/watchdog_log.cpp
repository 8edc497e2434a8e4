#include "tracepp/read/watchdog_log.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>

#include "base/number.h"
#include "slurm/hostlist.h"
#include "tracepp/read/log_words.h"
#include "tracepp/read/trace_names.h"

namespace ms::tracepp {
namespace {

constexpr int kMostRank = 1 << 20;
constexpr std::size_t kMostLine = 1 << 16;                       // bytes; what is behind is dropped
constexpr std::int64_t kWritten_ns = 1'000'000'000'000'000'000;  // when all lines were written, on no clock
constexpr std::string_view kTimeout = "Watchdog caught collective operation timeout: WorkNCCL(";
constexpr std::string_view kEnqueued = "ast enqueued ", kCompleted = "ast completed ";

// Returns the number of "last enqueued NCCL work: 12" or "last enqueued work: 12"; -1: the line has none.
std::int64_t work_behind(std::string_view line, std::string_view part) {
  const std::size_t at = line.find(part);
  return at == std::string_view::npos ? -1 : number_after(line.substr(at, part.size() + 20), "work: ").value_or(-1);
}

std::string_view between(std::string_view text, std::string_view open, std::string_view close) {
  const std::size_t at = text.find(open);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = text.substr(at + open.size());
  const std::size_t end = rest.find(close);
  return end == std::string_view::npos ? std::string_view() : rest.substr(0, end);
}

// Returns the group of "[PG ID 2 PG GUID 9(tp) Rank 7]" or "[PG 0 (default_pg) Rank 7]".
std::string group_of(std::string_view line) {
  std::string_view name = between(line, "[PG ", " Rank ");
  if (const std::size_t guid = name.find("GUID "); guid != std::string_view::npos) name.remove_prefix(guid + 5);
  return std::string(name.substr(0, 100));
}

bool is_of_all_ranks(std::string_view group) { return group == "0" || has_words(group, "default_pg"); }

// Returns the rank of the run: the prefix "[rank7]:" tells it, and "Rank 7", which is one in the group, if the group
// has all ranks or is not said; -1: the line has none.
int rank_of(std::string_view line, std::string_view group) {
  auto number = number_after(line, "[rank");
  if (!number && (group.empty() || is_of_all_ranks(group))) number = number_after(line, "Rank ");
  return !number || *number < 0 || *number > kMostRank ? -1 : static_cast<int>(*number);
}

// Returns the time of "[E1127 10:42:28.8 x.cpp:6]" in seconds since the year began, of months of 31 days; -1: none.
double time_of_day_s(std::string_view line) {
  constexpr std::size_t kShown = 13;  // "1127 10:42:28"
  std::size_t at = line.find("[E");
  while (at != line.npos && line.size() > at + 2 + kShown && line[at + 6] != ' ') at = line.find("[E", at + 1);
  if (at == line.npos || line.size() <= at + 2 + kShown || line[at + 9] != ':' || line[at + 12] != ':') return -1;
  const auto two = [&](std::size_t place) { return whole_number<int>(line.substr(at + place, 2)).value_or(-1); };
  const int month = two(2), day = two(4), hour = two(7), minute = two(10), second = two(13);
  if (std::min({month, day, hour, minute, second}) < 0) return -1;
  return ((month * 31.0 + day) * 24 + hour) * 3600 + minute * 60 + second;
}

// Returns whether a moment is before a call that ran until another, in seconds since the year began. Of two months,
// only days tell: the first may be up to three days shorter.
bool is_before_call(double one_s, double now_s, double ran_s) {
  constexpr double kDay_s = 86400, kApart_s = 4 * kDay_s;
  const auto month = [&](double at_s) { return std::floor((at_s / kDay_s - 1) / 31); };
  return one_s + (month(one_s) == month(now_s) ? 0 : kApart_s) < now_s - ran_s;
}

// Returns whether the program logged a line: it runs on. Those of torchrun tell of the end of others.
bool is_logged(std::string_view line) {
  constexpr std::size_t kNear = 40;  // bytes; times and names of modules may be before the level
  const std::string_view begin = line.substr(0, kNear);
  return (has_words(begin, "WARNING") || has_words(begin, "INFO") || has_words(begin, "DEBUG")) &&
         !has_words(line, "torch.distributed") && !has_words(line, "torch/distributed") && !has_words(line, " NCCL ");
}

}  // namespace

bool is_watchdog_log(std::string_view beginning, bool is_named) {
  // The lines are near the end of a log, which may be long.
  return has_words(beginning, kTimeout) || (has_words(beginning, kEnqueued) && has_words(beginning, kCompleted)) ||
         (is_named && !has_words(beginning, std::string_view("\0", 1)) && has_words(beginning, "\n"));
}

std::int64_t WatchdogLogReader::read(TextInput& input) {
  ranks_.clear();
  named_.clear();
  noted_.clear();
  lines_.clear();
  gave_up_before_.clear();
  count_ = 0;
  file_ns_ = input.modified_ns();
  std::string line;
  std::array<char, 1 << 16> piece;
  for (std::size_t count = input.read(piece); count > 0; count = input.read(piece)) {
    std::string_view left(piece.data(), count);
    for (std::size_t end = left.find('\n'); end != std::string_view::npos; end = left.find('\n')) {
      line += left.substr(0, end);
      read_line(line);
      line.clear();
      left.remove_prefix(end + 1);
    }
    if (line.size() < kMostLine) line += left;
  }
  read_line(line);
  for (const auto& [number, rank] : ranks_) add(input, number, rank);
  add_lines();
  if (!ranks_.empty()) trace_.source = &kWatchdogLog;
  return 0;
}

void WatchdogLogReader::note(std::string_view line) {
  constexpr std::size_t kMostNoted = 4096, kLongest = 300;
  if (noted_.size() >= kMostNoted) return;
  const int label = slurm::take_label(line), worker = slurm::take_worker(line);
  Process process;
  process.rank = worker >= 0 ? worker : label;
  const slurm::KnownLine* known = slurm::known_line(line);
  const std::optional<slurm::TaskExit> exit = slurm::task_exit(line);
  if (exit) {
    process.host = exit->node;
    process.rank = small_number(number_after(line, ": task "), -1);
    known = nullptr;
  }
  if (known == nullptr && !exit && worker >= 0 && is_logged(line)) doubt_exception(worker);
  const std::string_view cause = exit ? "exit" : known != nullptr ? known->cause : "";
  if (cause.empty() || process.rank > kMostRank || !noted_.emplace(process.rank, cause).second) return;
  // "node1:4711:4802 [0] NCCL WARN ..."
  const std::size_t colon = line.find(':');
  const bool is_nccl = has_words(line, " NCCL ") && colon != line.npos && line.find(' ') > colon;
  if (is_nccl && slurm::is_host_name(line.substr(0, colon))) {
    process.host = line.substr(0, colon);
    process.pid = small_number(number_after(line, ":"), 0);
  }
  // Two exceptions and a line between them: the first was caught.
  if (cause == slurm::kException)
    std::erase_if(lines_, [&](const Noted& it) { return it.line.has_logged_after && it.line.process.rank == worker; });
  lines_.push_back({.line = {process, known, exit ? exit->code : 0, std::string(line.substr(0, kLongest)), file_ns_},
                    .cause = cause,
                    .place = count_,
                    .is_of_worker = worker >= 0});
}

void WatchdogLogReader::read_line(std::string_view line) {
  ++count_;
  note(line);
  const bool is_timeout = has_words(line, kTimeout);
  const std::int64_t enqueued = work_behind(line, kEnqueued), completed = work_behind(line, kCompleted);
  if (!is_timeout && (enqueued < 0 || !has_words(line, kCompleted))) return;
  const std::string group = group_of(line);
  const int number = rank_of(line, group);
  if (number < 0) return;
  if (is_timeout) {
    const auto sequence = number_after(line, "SeqNum=");
    if (!sequence) return;
    begin_attempt(number, time_of_day_s(line),
                  1e-3 * static_cast<double>(number_after(line, " ran for ").value_or(-1)));
    ranks_[number].newest_place = count_;
    std::string operation = "nccl:" + std::string(between(line, "OpType=", ",").substr(0, 40));
    std::ranges::transform(operation, operation.begin(),
                           [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    ranks_[number].works.try_emplace(*sequence, Work{.operation = operation,
                                                     .timeout_ms = number_after(line, "Timeout(ms)=").value_or(0),
                                                     .ran_ms = number_after(line, " ran for ").value_or(-1)});
    return;
  }
  Status status{.at = -1, .enqueued = enqueued, .completed = completed};
  if (const std::size_t own = line.find(" Rank "); own != line.npos)
    status.place = small_number(number_after(line.substr(own), " Rank "), -1);
  for (const std::string_view part : {" at work: ", " at NCCL work: ", " at work sequence id: "})
    status.at = std::max(status.at, number_after(line, part).value_or(-1));
  Rank& rank = ranks_[number];
  rank.seen_s = std::max(rank.seen_s, time_of_day_s(line));
  rank.newest_place = count_;
  rank.statuses.try_emplace(group, status);
  if (const auto work = rank.works.find(status.at); work != rank.works.end())
    named_.try_emplace({group, status.at}, work->second);
}

void WatchdogLogReader::doubt_exception(int rank) {
  if (noted_.erase({rank, slurm::kException}) == 0) return;
  for (Noted& it : lines_)
    if (it.line.process.rank == rank && it.cause == slurm::kException) it.line.has_logged_after = it.is_of_worker;
}

void WatchdogLogReader::begin_attempt(int number, double now_s, double ran_s) {
  Rank& rank = ranks_[number];
  if (now_s >= 0 && ran_s >= 0 && rank.gave_up_s >= 0 && is_before_call(rank.gave_up_s, now_s, ran_s)) {
    std::size_t end = 0;  // of the earlier attempt
    std::erase_if(ranks_, [&](const auto& it) {
      if (!is_before_call(std::max(it.second.gave_up_s, it.second.seen_s), now_s, ran_s)) return false;
      end = std::max(end, it.second.newest_place);
      gave_up_before_.insert(it.first);
      return true;
    });
    named_.clear();
    noted_.clear();
    std::erase_if(lines_, [&](const Noted& it) { return it.place <= end || (it.place < count_ && is_end(it)); });
    for (Noted& it : lines_) {
      it.is_before_timeouts = it.place < count_;
      if (it.place == count_) noted_.emplace(it.line.process.rank, it.cause);  // this timeout
    }
    ++trace_.problems["earlier attempt in a log, left out"];
  }
  double& gave_up_s = ranks_[number].gave_up_s;
  gave_up_s = std::max(gave_up_s, now_s);
}

bool WatchdogLogReader::is_end(const Noted& noted) const {
  const int rank = noted.line.process.rank;
  if (rank < 0 || noted.line.known == nullptr || noted.line.known->says == slurm::Says::effect) return true;
  return noted.line.known->says >= slurm::Says::trouble && gave_up_before_.contains(rank);
}

void WatchdogLogReader::add_lines() {
  for (Noted& it : lines_) {
    const auto rank = ranks_.find(it.line.process.rank);
    if (it.is_before_timeouts && (rank != ranks_.end() || noted_.contains({it.line.process.rank, it.cause}))) continue;
    if (it.line.has_logged_after && rank != ranks_.end() && !rank->second.statuses.empty()) continue;
    trace_.witnesses.lines.push_back(std::move(it.line));
  }
}

void WatchdogLogReader::add(const TextInput& input, int number, const Rank& rank) {
  if (rank.statuses.empty()) return;
  RankTrace added;
  added.rank = number;
  added.file = input.path();
  added.is_partial = true;
  added.is_flush_time_known = false;
  added.last_flush_ns = added.clock_ns = kWritten_ns;
  for (const auto& [name, status] : rank.statuses) {
    const std::int32_t group = tables_.group({.name = "PG " + name, .ranks = {}});
    added.places.emplace_back(group, status.place);
    added.newest.emplace_back(group, std::clamp<std::int64_t>(status.enqueued, -1, kNoDetail - 1));
    const std::int64_t open = status.at >= 0 ? status.at : status.completed + 1;
    if (open > status.enqueued || open >= kNoDetail) continue;
    const auto own = rank.works.find(open);
    const auto named = named_.find({name, open});
    const Work work = own != rank.works.end() ? own->second : named != named_.end() ? named->second : Work{};
    EventInfo info{.kind = comm_kind(work.operation), .group = group};
    if (trace::is_point_to_point(info.kind)) info.kind = Kind::other_comm;  // nothing tells the other end
    info.name = trace_.strings.id(work.operation);
    info.timeout_s = static_cast<std::int32_t>(std::clamp<std::int64_t>(work.timeout_ms / 1000, 0, 1'000'000'000));
    const std::int64_t ran_ms = own == rank.works.end() ? -1 : std::min<std::int64_t>(work.ran_ms, 1'000'000'000);
    added.is_flush_time_known |= ran_ms >= 0;
    added.events.push_back({.begin_ns = kWritten_ns - std::max<std::int64_t>(ran_ms, 0) * 1'000'000,
                            .detail = static_cast<std::uint32_t>(open),
                            .info = tables_.info(info),
                            .state = State::begun});
  }
  trace_.ranks.push_back(std::move(added));
}

namespace {

// Returns the members of a group of which some are known, by place: the ranks between them rise evenly. Empty: they do
// not, or no place is free, so that nothing tells of further members.
std::vector<int> spread(const std::map<int, int>& known) {
  if (known.size() < 2) return {};
  const auto& [first_place, first] = *known.begin();
  const auto& [last_place, last] = *known.rbegin();
  constexpr std::size_t kMostGaps = 16;  // places for each that is known
  const std::int64_t step = (last - first) / (last_place - first_place), zero = first - step * first_place;
  const auto places = static_cast<std::size_t>(last_place) + 1;
  if (step <= 0 || zero < 0 || places == known.size() || places > kMostGaps * known.size()) return {};
  std::vector<int> ranks;
  for (int place = 0; place <= last_place; ++place) ranks.push_back(static_cast<int>(zero + step * place));
  const bool is_even = std::ranges::all_of(
      known, [&](const auto& it) { return ranks[static_cast<std::size_t>(it.first)] == it.second; });
  return is_even ? ranks : std::vector<int>{};
}

}  // namespace

void complete_watchdog_groups(RunTrace& trace) {
  if (trace.ranks.empty()) return;
  std::map<std::int32_t, std::map<int, int>> places;  // by group and place: the rank
  for (const RankTrace& rank : trace.ranks)
    for (const auto& [group, place] : rank.places)
      if (place >= 0) places[group].emplace(place, rank.rank);
  for (std::size_t i = 0; i < trace.groups.size(); ++i) {
    ProcessGroup& group = trace.groups[i];
    if (!has_words(group.name, "(default_pg)")) {
      group.ranks = spread(places[static_cast<std::int32_t>(i)]);
      continue;
    }
    group.ranks.resize(static_cast<std::size_t>(trace.ranks.back().rank) + 1);
    std::iota(group.ranks.begin(), group.ranks.end(), 0);
  }
}

}  // namespace ms::tracepp
