#include "tracepp/read/watchdog_log.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>
#include <optional>

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
  const std::string_view cause = exit ? "exit" : known != nullptr ? known->cause : "";
  if (cause.empty() || process.rank > kMostRank || !noted_.emplace(process.rank, cause).second) return;
  // "node1:4711:4802 [0] NCCL WARN ..."
  const std::size_t colon = line.find(':');
  const bool is_nccl = has_words(line, " NCCL ") && colon != line.npos && line.find(' ') > colon;
  if (is_nccl && slurm::is_host_name(line.substr(0, colon))) {
    process.host = line.substr(0, colon);
    process.pid = small_number(number_after(line, ":"), 0);
  }
  trace_.witnesses.lines.push_back({process, known, exit ? exit->code : 0, std::string(line.substr(0, kLongest))});
}

void WatchdogLogReader::read_line(std::string_view line) {
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
    std::string operation = "nccl:" + std::string(between(line, "OpType=", ",").substr(0, 40));
    std::ranges::transform(operation, operation.begin(),
                           [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    ranks_[number].works.try_emplace(*sequence, Work{.operation = operation,
                                                     .timeout_ms = number_after(line, "Timeout(ms)=").value_or(0),
                                                     .ran_ms = number_after(line, " ran for ").value_or(-1)});
    return;
  }
  Status status{.at = -1, .enqueued = enqueued, .completed = completed};
  for (const std::string_view part : {" at work: ", " at NCCL work: ", " at work sequence id: "})
    status.at = std::max(status.at, number_after(line, part).value_or(-1));
  Rank& rank = ranks_[number];
  rank.statuses.try_emplace(group, status);
  if (const auto work = rank.works.find(status.at); work != rank.works.end())
    named_.try_emplace({group, status.at}, work->second);
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

void complete_watchdog_groups(RunTrace& trace) {
  if (trace.ranks.empty()) return;
  for (ProcessGroup& group : trace.groups) {
    if (!has_words(group.name, "(default_pg)")) continue;
    group.ranks.resize(static_cast<std::size_t>(trace.ranks.back().rank) + 1);
    std::iota(group.ranks.begin(), group.ranks.end(), 0);
  }
}

}  // namespace ms::tracepp
