#include "tracepp/read/read.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <thread>

#include "base/error.h"
#include "tracepp/read/attempts.h"
#include "tracepp/read/choose_recording.h"
#include "tracepp/read/chrome_reader.h"
#include "tracepp/read/flight_recorder_run.h"
#include "tracepp/read/formats.h"
#include "tracepp/read/watchdog_log.h"

namespace ms::tracepp {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kOwnEnding = ".mst";  // of the files of ms-train

// The facts of a file about its run.
struct Facts {
  std::string path, run;
  const TraceFormat* format = nullptr;
  const Source* source = &kUnknownSource;
  mesh::Mesh mesh;
  bool has_mesh = false;
  std::int64_t world = 0;  // 0: not known
};

// The result of one thread's files.
struct Part {
  RunTrace trace, log;
  std::vector<Facts> facts;           // of files with traces
  std::vector<std::string> unusable;  // "x.txt: not a trace"
};

// Returns the share of the progress of a file by its size, limited because sparse files may claim any size.
std::int64_t weight_of(const fs::path& file) {
  constexpr std::uintmax_t kMost = std::uintmax_t{1} << 40;
  std::error_code error;
  const std::uintmax_t size_bytes = fs::file_size(file, error);
  return error ? 0 : static_cast<std::int64_t>(std::min(size_bytes, kMost));
}

// `depth`: of directories below a named one; `num_earlier`: becomes the number of files of earlier attempts, left out.
std::vector<File> list_files(const std::vector<std::string>& paths, int depth, std::size_t& num_earlier) {
  std::vector<File> files;
  std::error_code ignored;  // paths that vanished or cannot be examined are skipped
  const auto add_directory = [&](const fs::path& directory, int left, const auto& self) -> void {
    std::vector<fs::path> entries;
    for (fs::directory_iterator it(directory, ignored), end; it != end; it.increment(ignored)) entries.push_back(*it);
    std::ranges::sort(entries);
    for (const fs::path& entry : entries) {
      const std::string name = entry.filename();
      if (name.starts_with('.') || name.ends_with(".previous")) continue;  // hidden; of the run before
      if (fs::is_regular_file(entry, ignored)) {
        files.push_back({.path = entry, .size_bytes = weight_of(entry)});
      } else if (left > 0 && fs::is_directory(entry, ignored) && (depth == 1 || !fs::is_symlink(entry, ignored))) {
        self(entry, left - 1, self);  // a link such as "latest" leads to what is read anyway
      }
    }
  };
  for (const std::string& path : paths) {
    if (fs::is_directory(path, ignored)) {
      add_directory(path, depth, add_directory);
    } else {
      const bool regular = fs::is_regular_file(path, ignored);
      files.push_back({.path = path, .named = true, .size_bytes = regular ? weight_of(path) : 0});
    }
  }
  num_earlier = leave_out_earlier_attempts(files);
  return files;
}

// Returns whether a file, by its name, is the trace of a rank.
bool is_trace_name(std::string_view path) {
  return path.ends_with(kOwnEnding) || path.ends_with(".json") || path.ends_with(".json.gz") ||
         path.ends_with(".json.zst");
}

// Returns whether a file in a directory is the log of a job, by its name.
bool is_log_name(std::string_view path) {
  return path.ends_with(".out") || path.ends_with(".err") || path.ends_with(".log");
}

// Reads files of any format into one part.
class Reader {
 public:
  Reader(Part& part, const ReadOptions& options) : part_(part), options_(options), readers_(trace_formats().size()) {}

  void read(const File& file) {
    const std::size_t had_traces = part_.trace.ranks.size(), had_logs = part_.log.ranks.size();
    const std::size_t had_witnesses = part_.trace.witnesses.size() + part_.log.witnesses.size();
    const std::map<std::string, std::uint64_t> known = part_.trace.problems;
    Facts facts{.path = file.path, .run = {}, .mesh = {}};
    std::string why = file.path.ends_with(".nsys-rep") || file.path.ends_with(".qdrep")
                          ? "a report of Nsight Systems: give what nsys export --type sqlite makes of it"
                          : "not a trace";
    try {
      facts.world = dispatch(file, facts.format, why);
    } catch (const Error& error) {
      if ((file.named && error.kind() == "file.open") || error.kind() == "trace.run") throw;
      why = error.message();
    }
    const bool is_log = facts.format != nullptr && facts.format->is_log;
    RunTrace& trace = is_log ? part_.log : part_.trace;
    const std::size_t had = is_log ? had_logs : had_traces;
    if (trace.ranks.size() == had) {
      if (part_.trace.witnesses.size() + part_.log.witnesses.size() > had_witnesses) return;
      for (const auto& [problem, count] : trace.problems) {
        const auto before = known.find(problem);
        if (before == known.end() || before->second < count) why += fmt::format("; {}", problem);
      }
      // In a directory there may be anything; a rank's own file, emptied, is that of a rank.
      const bool is_of_rank = is_trace_name(file.path);
      const bool counts = (file.named || !is_log) && (file.named || file.path.ends_with(kOwnEnding) ||
                                                      why != "not a trace" || (is_of_rank && file.size_bytes == 0));
      if (is_of_rank && file.size_bytes == 0) why = "is empty";
      part_.unusable.push_back(fmt::format("{}: {}", file.path, why));
      if (!counts) return;
      ++trace.problems["file without a trace that could be read"];
      trace.unusable.push_back(why.starts_with(file.path) ? why : part_.unusable.back());
      return;
    }
    facts.source = trace.source;
    if (options_.thin && facts.source == &kOwnSource) {
      for (std::size_t r = had; r < trace.ranks.size(); ++r) {
        options_.thin(trace, trace.ranks[r]);
        trace.ranks[r].events.shrink_to_fit();
      }
    }
    facts.run = trace.run;
    facts.mesh = trace.mesh;
    facts.has_mesh = trace.has_mesh;
    part_.facts.push_back(std::move(facts));
  }

 private:
  // Returns the number of ranks of the run, 0 if it is not known; sets the file's format, null for none, and `why` it
  // gave no rank, if it gives none.
  std::int64_t dispatch(const File& file, const TraceFormat*& format, std::string& why) {
    TextInput input(file.path, options_.max_text_bytes);
    format = recognise(input, file.named || is_log_name(file.path));
    if (format == nullptr) return 0;
    why = format->no_ranks;
    std::unique_ptr<TraceReader>& reader = readers_[static_cast<std::size_t>(format - trace_formats().data())];
    if (!reader) reader = format->make(format->is_log ? part_.log : part_.trace);
    return reader->read(input);
  }

  Part& part_;
  const ReadOptions& options_;
  std::vector<std::unique_ptr<TraceReader>> readers_;  // [format]; made when first needed
};

// Splits files into neighbours of about as many bytes.
std::vector<std::span<const File>> split(const std::vector<File>& files, std::size_t parts) {
  std::int64_t total = 0;
  for (const File& file : files) total += file.size_bytes + 1;
  std::vector<std::span<const File>> spans;
  std::size_t from = 0;
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    bytes += files[i].size_bytes + 1;
    const auto due = total * static_cast<std::int64_t>(spans.size() + 1) / static_cast<std::int64_t>(parts);
    if (bytes < due && i + 1 < files.size()) continue;
    spans.push_back(std::span(files).subspan(from, i + 1 - from));
    from = i + 1;
  }
  return spans;
}

std::vector<Part> read_parts(const std::vector<File>& files, const ReadOptions& options) {
  const unsigned processors = std::max(1U, std::thread::hardware_concurrency());
  const std::size_t threads = options.threads > 0 ? static_cast<std::size_t>(options.threads) : processors;
  const auto spans = split(files, std::min(threads, std::max<std::size_t>(1, files.size())));
  std::vector<Part> parts(spans.size());
  std::vector<std::exception_ptr> errors(spans.size());
  std::mutex progress_mutex;
  std::int64_t done_bytes = 0, total_bytes = 0;
  for (const File& file : files) total_bytes += file.size_bytes;
  std::atomic<bool> stop = false;
  const auto work = [&](std::size_t i) {
    try {
      Reader reader(parts[i], options);
      for (const File& file : spans[i]) {
        if (stop) return;
        reader.read(file);
        const std::scoped_lock lock(progress_mutex);
        done_bytes += file.size_bytes;
        if (options.progress) options.progress(done_bytes, total_bytes);
      }
    } catch (...) {
      errors[i] = std::current_exception();
      stop = true;
    }
  };
  {
    std::vector<std::jthread> others;
    for (std::size_t i = 1; i < spans.size(); ++i) others.emplace_back(work, i);
    if (!spans.empty()) work(0);
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return parts;
}

void expect_one_run(const Facts& a, const Facts& b) {
  const auto disagree = [&](const std::string& of_a, const std::string& of_b) {
    throw user_error("trace.run", fmt::format("not of one run: {} {}, but {} {}", a.path, of_a, b.path, of_b),
                     "name the files of one run only");
  };
  const auto size = [](const mesh::Mesh& mesh) {
    return fmt::format("has dp {}, pp {}, tp {}", mesh.dp, mesh.pp, mesh.tp);
  };
  if (a.source != b.source)
    disagree(fmt::format("is of kind {}", a.source->name), fmt::format("of kind {}", b.source->name));
  if (!a.run.empty() && !b.run.empty() && a.run != b.run) disagree("is of run " + a.run, "of run " + b.run);
  if (a.has_mesh && b.has_mesh && a.mesh != b.mesh) disagree(size(a.mesh), size(b.mesh));
  if (a.world > 0 && b.world > 0 && a.world != b.world) {
    disagree(fmt::format("is of {} ranks", a.world), fmt::format("of {}", b.world));
  }
}

// Takes the runs of the logs out of the parts: lines of PyTorch's watchdog, and what else the logs tell.
RunTrace take_logs(std::vector<Part>& parts) {
  RunTrace logs;
  for (Part& part : parts) {
    merge(logs, std::move(part.log));
    std::erase_if(part.facts, [](const Facts& facts) { return facts.format->is_log; });
  }
  return logs;
}

// Numbers the ranks without a number, sorts all, and keeps one of each.
void order_ranks(RunTrace& trace) {
  std::set<int> numbers;
  for (const RankTrace& rank : trace.ranks) numbers.insert(rank.rank);
  int next = 0;
  for (RankTrace& rank : trace.ranks) {
    if (rank.rank >= 0) continue;
    while (numbers.contains(next)) ++next;
    rank.rank = next++;
    rank.numbered = Numbered::made_up;
    ++trace.problems["rank whose number nothing tells"];
  }
  std::ranges::stable_sort(trace.ranks, {}, &RankTrace::rank);
  const auto newer = [](const RankTrace& a, const RankTrace& b) {
    if (are_of_one_time(a, b)) return shows_more(a, b);
    std::error_code ignored;
    return fs::last_write_time(a.file, ignored) > fs::last_write_time(b.file, ignored);
  };
  std::vector<RankTrace> kept;
  kept.reserve(trace.ranks.size());
  for (RankTrace& rank : trace.ranks) {
    if (kept.empty() || kept.back().rank != rank.rank) {
      kept.push_back(std::move(rank));
    } else if (trace.source->continues_files) {
      auto& events = kept.back().events;
      events.insert(events.end(), rank.events.begin(), rank.events.end());
      sort_by_begin(events);
      kept.back().last_flush_ns = std::max(kept.back().last_flush_ns, rank.last_flush_ns);
    } else {
      ++trace.problems["second file of a rank, the older was left out"];
      if (newer(rank, kept.back())) kept.back() = std::move(rank);
    }
  }
  trace.ranks = std::move(kept);
}

// Returns whether a directory below has the traces of a run of ms-train: which one is meant is for the user to say.
bool has_own_traces(const std::vector<std::string>& paths) {
  std::error_code ignored;
  for (const std::string& path : paths)
    for (fs::directory_iterator it(path, ignored), end; it != end; it.increment(ignored))
      if (fs::is_regular_file(it->path() / "trace" / "rank-00000.mst", ignored)) return true;
  return false;
}

// Returns a hint to the directory that the user may have meant.
std::string where_traces_are(const std::vector<std::string>& paths) {
  std::string first;
  std::size_t others = 0;
  bool has_entries = false;
  std::error_code ignored;
  for (const std::string& path : paths) {
    has_entries = has_entries || !fs::is_directory(path, ignored);
    for (fs::directory_iterator it(path, ignored), end; it != end; it.increment(ignored)) {
      has_entries = true;
      const fs::path trace = it->path() / "trace";
      if (!fs::is_regular_file(trace / "rank-00000.mst", ignored)) continue;
      others += first.empty() ? 0 : 1;
      if (first.empty() || trace.string() < first) first = trace.string();
    }
  }
  if (others > 0) return fmt::format("did you mean {}, or one of {} more like it?", first, others);
  if (!first.empty()) return fmt::format("did you mean {}?", first);
  return has_entries ? ""
                     : "ms-train writes traces to trace.dir, or else to run.dir/trace, unless trace.enabled is false";
}

Error nothing_to_read(const std::vector<std::string>& paths, const std::vector<Part>& parts, std::size_t files,
                      std::size_t num_earlier) {
  std::vector<std::string> seen;
  for (const Part& part : parts) seen.insert(seen.end(), part.unusable.begin(), part.unusable.end());
  const std::string where = fmt::format("{}", fmt::join(paths, ", "));
  if (files == 0) return user_error("trace.none", fmt::format("no files in {}", where), where_traces_are(paths));
  constexpr std::size_t kShown = 5;
  std::string text = fmt::format(
      "no traces in {}: {}", where,
      fmt::join(seen.begin(), seen.begin() + static_cast<std::ptrdiff_t>(std::min(seen.size(), kShown)), "; "));
  if (seen.size() > kShown) text += fmt::format("; and {} more", seen.size() - kShown);
  if (num_earlier > 0) text += fmt::format("; {} of earlier attempts left out", num_earlier);
  return user_error("trace.none", text, where_traces_are(paths));
}

}  // namespace

RunTrace read_run(const std::vector<std::string>& paths, const ReadOptions& options) {
  constexpr int kDeep = 6;  // such as profile_trace/iteration_10, plugins/profile/RUN
  std::size_t num_earlier = 0;
  std::vector<File> files = list_files(paths, 1, num_earlier);
  std::vector<Part> parts = read_parts(files, options);
  const auto is_read = [](const Part& part) { return !part.facts.empty() || part.trace.witnesses.size() > 0; };
  if (std::ranges::none_of(parts, is_read)) {
    std::size_t num_deep_earlier = 0;
    std::vector<File> deep = list_files(paths, kDeep, num_deep_earlier);
    if (deep.size() > files.size() && !has_own_traces(paths)) {
      parts = read_parts(deep, options);
      files = std::move(deep);
      num_earlier = num_deep_earlier;
    }
  }
  if (num_earlier > 0 && !parts.empty())
    parts[0].trace.problems["file of an earlier attempt, left out: name only its files to judge it"] += num_earlier;
  RunTrace logs = take_logs(parts);
  if (!logs.ranks.empty()) {
    logs.source = &kWatchdogLog;
    order_ranks(logs);
    complete_watchdog_groups(logs);
  }
  const Facts* first = nullptr;
  const Facts* meshed = nullptr;
  for (const Part& part : parts) {
    for (const Facts& facts : part.facts) {
      if (first != nullptr) expect_one_run(*first, facts);
      if (meshed != nullptr) expect_one_run(*meshed, facts);
      if (first == nullptr) first = &facts;
      if (meshed == nullptr && (facts.has_mesh || facts.world > 0)) meshed = &facts;
    }
  }
  const bool is_told = logs.witnesses.size() > 0 || std::ranges::any_of(parts, is_read);
  if (first == nullptr && logs.ranks.empty() && !(options.witnesses_suffice && is_told))
    throw nothing_to_read(paths, parts, files.size(), num_earlier);
  if (first == nullptr) {
    for (Part& part : parts) merge(logs, std::move(part.trace));
    return logs;
  }
  RunTrace trace = std::move(parts[0].trace);
  for (std::size_t i = 1; i < parts.size(); ++i) {
    RunTrace& part = parts[i].trace;
    trace.microbatches = std::max(trace.microbatches, part.microbatches);
    trace.chunks = std::max(trace.chunks, part.chunks);
    trace.flops_per_step = std::max(trace.flops_per_step, part.flops_per_step);
    trace.peak_flops = std::max(trace.peak_flops, part.peak_flops);
    merge(trace, std::move(part));
  }
  trace.source = first->source;
  trace.run = first->run;
  trace.has_mesh = meshed != nullptr && meshed->has_mesh;
  trace.mesh = trace.has_mesh ? meshed->mesh : mesh::Mesh{};
  trace.world = meshed != nullptr ? meshed->world : 0;
  if (first->format->before_order != nullptr) first->format->before_order(trace);
  if (trace.source == &kKineto || trace.source == &kChromeTrace) choose_recording(trace);
  order_ranks(trace);
  if (first->format->finish != nullptr) first->format->finish(trace);
  trace.witnesses.add(std::move(logs.witnesses));
  leave_out_old_lines(trace);
  if (!logs.ranks.empty()) trace.logs.push_back(std::move(logs));
  return trace;
}

}  // namespace ms::tracepp
