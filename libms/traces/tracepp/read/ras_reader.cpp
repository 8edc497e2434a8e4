#include "tracepp/read/witness_readers.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <tuple>

#include "base/json.h"
#include "base/number.h"
#include "base/text.h"
#include "tracepp/read/log_words.h"

namespace ms::tracepp {
namespace {

constexpr std::size_t kMostRas_bytes = std::size_t{256} << 20, kMostListed = 1 << 20, kLongestName = 256;

std::string word_behind(std::string_view text, std::string_view part) {
  const std::size_t at = text.find(part);
  if (at == std::string_view::npos) return "";
  const std::string_view rest = text.substr(at + part.size());
  return std::string(rest.substr(0, std::min(rest.find(' '), kLongestName)));
}

// "Rank 12 -- GPU 4 managed by process 3032 on node 10.4.0.2", "Process 3032 on node 10.4.0.2 managing GPU 4".
Process process_of(std::string_view line) {
  const std::optional<std::int64_t> pid = number_after(line, "process ");
  return {.rank = small_number(number_after(line, "Rank "), -1),
          .host = word_behind(line, "on node "),
          .pid = small_number(pid ? pid : number_after(line, "Process "), 0)};
}

RasCount& count_of(std::vector<RasCount>& counts, std::int64_t calls) {
  const auto found = std::ranges::find(counts, calls, &RasCount::calls);
  return found != counts.end() ? *found : counts.emplace_back(RasCount{.calls = calls, .ranks = 0, .listed = {}});
}

void finish(RasReport& report) {
  for (RasComm& comm : report.comms)
    for (auto& [operation, counts] : comm.calls) std::ranges::sort(counts, {}, &RasCount::calls);
  std::ranges::stable_sort(report.comms, std::ranges::greater{}, &RasComm::size);
}

class TextReport {
 public:
  explicit TextReport(RasReport& report) : report_(report) { report.is_text = true; }

  void take(std::string_view line) {
    if (line.starts_with("#")) return begin_comm(line);
    if (line.starts_with("INCOMPLETE") || line.starts_with("DEAD") || line.starts_with("TIMEOUT")) comm_ = -1;
    if (has_words(line, " GPUs  Processes     GPUs")) is_summary_ = true;
    if (is_summary_ && take_summary(line)) return;
    if (has_words(line, "Missing communicator data from ")) {
      const std::int64_t number = number_after(line, "data from ").value_or(0);
      if (comm_ < 0) report_.num_silent += number;
      list_ = comm_ < 0 ? &report_.silent : &comm()->lost;
    } else if (has_words(line, " considered dead ")) {
      report_.num_dead += leading_number<std::int64_t>(trim(line)).value_or(0);
      list_ = &report_.dead;
    } else if (trim(line).starts_with("Process ")) {
      list(line);
    } else if (comm_ >= 0) {
      take_of_comm(line);
    } else if (is_table_) {
      take_row(line);
    }
    if (has_words(line, "Comms     Nodes     Ranks")) is_table_ = true;
    if (line.starts_with("Errors") || line.starts_with("Warnings")) is_table_ = false;
  }

 private:
  RasComm* comm() { return &report_.comms[static_cast<std::size_t>(comm_)]; }

  void list(std::string_view line) {
    if (list_ != nullptr && list_->size() < kMostListed) list_->push_back(process_of(line));
  }

  // "      4          8            1         32       32"
  bool take_summary(std::string_view line) {
    std::vector<std::int64_t> numbers = numbers_of(line);
    if (numbers.size() != 5) return false;
    report_.world = numbers[4];
    is_summary_ = false;
    return true;
  }

  static std::vector<std::int64_t> numbers_of(std::string_view line) {
    std::vector<std::int64_t> numbers;
    for (const std::string& word : split(line, ' '))
      if (const auto number = word.empty() ? std::nullopt : leading_number<std::int64_t>(word); number)
        numbers.push_back(*number);
    return numbers;
  }

  // "    0         1         4         8        32        32   RUNNING  MISMATCH"
  void take_row(std::string_view line) {
    const std::vector<std::int64_t> numbers = numbers_of(line);
    if (numbers.size() != 6 || sizes_.size() > kMostListed) return;
    sizes_[numbers[0]] = numbers[4];
  }

  // "#0-0 (fa00000000000001) MISMATCH"
  void begin_comm(std::string_view line) {
    const std::size_t open = line.find('('), close = line.find(')');
    if (open == line.npos || close == line.npos || close < open) return;
    const std::string hash(line.substr(open + 1, std::min(close - open - 1, kLongestName)));
    const auto known = std::ranges::find(report_.comms, hash, &RasComm::hash);
    comm_ = known - report_.comms.begin();
    list_ = nullptr;
    counts_ = nullptr;
    if (known != report_.comms.end()) return;
    RasComm added;
    added.hash = hash;
    const auto size = sizes_.find(leading_number<std::int64_t>(line.substr(1)).value_or(-1));
    added.size = size == sizes_.end() ? 0 : small_number(size->second, 0);
    report_.comms.push_back(std::move(added));
  }

  // "Remote process error -- GPU 0 managed by ..."
  static std::string error_in(std::string_view text) {
    return std::string(text.substr(0, text.find(" -- ")).substr(0, 60));
  }

  void take_of_comm(std::string_view line) {
    constexpr std::string_view kCounts = " operation counts", kDifferent = "ranks have different ";
    if (has_words(line, kCounts) && has_words(line, kDifferent)) {
      std::string operation = word_behind(line, kDifferent);
      counts_ = &comm()->calls[operation == "collective" || operation == "operation" ? "collective" : operation];
      list_ = nullptr;
      return;
    }
    const bool is_none = has_words(line, "not launched any operations");
    if (counts_ != nullptr && (is_none || has_words(line, " launched up to operation "))) {
      const std::int64_t calls = is_none ? 0 : number_after(line, "up to operation ").value_or(0);
      const bool is_one = trim(line).starts_with("Rank ");
      RasCount& count = count_of(*counts_, calls);
      count.ranks += is_one ? 1 : leading_number<std::int64_t>(trim(line)).value_or(0);
      list_ = &count.listed;
      if (is_one) list(line);
      return;
    }
    constexpr std::string_view kStatus = " status ", kReported = " reported ";
    if (has_words(line, "different status")) return;
    if (has_words(line, kReported) || has_words(line, " has status ") || has_words(line, " have status ")) {
      const std::string word = has_words(line, kReported)
                                   ? error_in(line.substr(line.find(kReported) + kReported.size()))
                                   : word_behind(line, kStatus);
      list_ = has_words(line, kReported) ? &comm()->errors[word]
              : word == "ABORT"          ? &comm()->aborted
              : word == "NOCOMM"         ? &comm()->absent
              : word == "UNKNOWN"        ? &comm()->absent
                                         : nullptr;
      const bool is_one = trim(line).starts_with("Rank ");
      if (word == "INIT") comm()->initialising += is_one ? 1 : leading_number<std::int64_t>(trim(line)).value_or(0);
      if (is_one) list(line);
      return;
    }
    if (trim(line).starts_with("Rank ")) list(line);
  }

  RasReport& report_;
  std::map<std::int64_t, std::int64_t> sizes_;  // of communicators, by their group in the table
  std::ptrdiff_t comm_ = -1;
  std::vector<Process>* list_ = nullptr;
  std::vector<RasCount>* counts_ = nullptr;
  bool is_summary_ = false, is_table_ = false;
};

std::string_view error_name(std::int64_t result) {
  constexpr std::array<std::string_view, 9> kErrorNames{"",
                                                        "Unhandled CUDA error",
                                                        "System error",
                                                        "Internal error",
                                                        "Invalid argument",
                                                        "Invalid usage",
                                                        "Remote process error",
                                                        "",
                                                        "Timeout"};
  return result > 0 && static_cast<std::size_t>(result) < kErrorNames.size()
             ? kErrorNames[static_cast<std::size_t>(result)]
             : "";
}

void read_json(const Json& json, RasReport& report) {
  constexpr std::int64_t kInProgress = 7;
  std::set<std::tuple<std::string, int, int>> processes;
  const auto process_in = [&](const Json& rank) {
    Process process{.rank = rank.get<int>("rank"), .host = rank.get<std::string>("host"), .pid = rank.get<int>("pid")};
    process.host.resize(std::min(process.host.size(), kLongestName));
    if (process.rank < 0) process.rank = -1;
    processes.emplace(process.host, process.pid, rank.get<int>("cuda_dev"));
    return process;
  };
  for (const Json& from : json.at("communicators")) {
    RasComm& comm = report.comms.emplace_back();
    comm.hash = from.get<std::string>("hash").substr(0, kLongestName);
    comm.size = from.get<int>("size");
    std::map<std::string, std::map<std::int64_t, RasCount>> counts;
    for (const Json& rank : from.at("ranks")) {
      const Process process = process_in(rank);
      const Json& status = rank.at("status");
      for (const char* key : {"init_state", "async_error"})
        if (const std::string_view name = error_name(status.get<std::int64_t>(key)); !name.empty())
          comm.errors[std::string(name)].push_back(process);
      if (status.get<std::int64_t>("init_state") == kInProgress) ++comm.initialising;
      if (status.get<bool>("abort_flag")) comm.aborted.push_back(process);
      for (const Json::Member& count : rank.at("collective_counts").items()) {
        const auto calls = count.value.get<std::int64_t>();
        RasCount& equal = counts[count.key][calls];
        equal.calls = calls;
        ++equal.ranks;
        equal.listed.push_back(process);
      }
    }
    for (auto& [operation, by_calls] : counts)
      for (auto& [calls, count] : by_calls) comm.calls[operation].push_back(std::move(count));
    for (const Json& rank : from.at("missing_ranks")) {
      const Process process = process_in(rank);
      const Json& status = rank.at("status");
      const bool is_dead = status.get<bool>("considered_dead"), is_silent = status.get<bool>("unresponsive");
      (is_dead || is_silent ? comm.lost : comm.absent).push_back(process);
      if (!is_dead && !is_silent) continue;
      std::vector<Process>& list = is_dead ? report.dead : report.silent;
      const auto is_same = [&](const Process& it) { return it.host == process.host && it.pid == process.pid; };
      if (std::ranges::any_of(list, is_same)) continue;
      list.push_back({.rank = -1, .host = process.host, .pid = process.pid});
    }
  }
  report.num_dead = static_cast<std::int64_t>(report.dead.size());
  report.num_silent = static_cast<std::int64_t>(report.silent.size());
  report.world = static_cast<std::int64_t>(processes.size());
}

}  // namespace

bool is_ras_output(std::string_view beginning, bool) {
  return (has_words(beginning, "Communicators...") && has_words(beginning, "Job summary")) ||
         (has_words(beginning, "\"communicators_count\"") && has_words(beginning, "\"nccl_version\""));
}

std::int64_t read_ras(TextInput& input, RunTrace& trace) {
  const std::string text = whole_text(input, kMostRas_bytes);
  RasReport report;
  report.file = input.path();
  report.file_ns = input.modified_ns();
  if (has_words(std::string_view(text).substr(0, 1 << 16), "\"communicators_count\"")) {
    // Answers to the lines that asked for it may stand before.
    const std::size_t begin = std::min(text.find('{'), text.size());
    const std::optional<Json> json = Json::try_parse(std::string_view(text).substr(begin), {.max_depth = 16});
    try {
      if (json) read_json(*json, report);
    } catch (const JsonError&) { report.comms.clear(); }
    if (!json || report.comms.empty()) {
      ++trace.problems["output of NCCL's RAS that is no whole JSON"];
      return 0;
    }
  } else {
    TextReport lines(report);
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      std::string_view line = std::string_view(text).substr(at, end - at);
      if (line.ends_with('\r')) line.remove_suffix(1);
      lines.take(line);
      at = end + 1;
    }
  }
  finish(report);
  trace.witnesses.ras.push_back(std::move(report));
  return 0;
}

}  // namespace ms::tracepp
