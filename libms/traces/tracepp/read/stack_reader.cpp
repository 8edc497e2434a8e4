#include "tracepp/read/witness_readers.h"

#include <algorithm>
#include <filesystem>

#include "base/text.h"
#include "tracepp/read/log_words.h"
#include "tracepp/read/trace_names.h"

namespace ms::tracepp {
namespace {

constexpr std::size_t kMostStacks_bytes = std::size_t{64} << 20, kMostFrames = 256, kLongestFrame = 400;
constexpr std::size_t kMostProcesses = 1 << 20;

// Returns the node of the files that agents of ms-driver write: "attempt-3.node1.stacks".
std::string node_of(const std::string& path) {
  std::string name = std::filesystem::path(path).filename();
  const std::size_t dot = name.find('.');
  constexpr std::string_view kEnd = ".stacks";
  if (!name.starts_with("attempt-") || !name.ends_with(kEnd) || dot + kEnd.size() >= name.size()) return "";
  return name.substr(dot + 1, name.size() - dot - 1 - kEnd.size());
}

class StackText {
 public:
  explicit StackText(const std::string& path) : host_(node_of(path)), rank_(rank_of_file(path).value_or(-1)) {}

  void take(std::string_view line) {
    const std::string_view text = trim(line);
    if (text.empty()) return;
    if (line.starts_with("Process ") || line.starts_with("process ")) return begin_process(line);
    if (text.starts_with("Thread ") || text.starts_with("Current thread ")) return begin_thread(text);
    if (text.starts_with("thread ") || is_left_out_ || found_.empty()) return;
    std::string frame = frame_of(text);
    std::vector<std::string>& frames = found_.back().frames;
    if (!frame.empty() && frames.size() < kMostFrames) frames.push_back(std::move(frame));
  }

  std::vector<ProcessStack> finish() {
    // The number of a file is that of its only process.
    if (found_.size() == 1 && found_[0].process.rank < 0) found_[0].process.rank = rank_;
    const auto is_helper = [](const std::string& frame) {
      return frame.starts_with("_worker_loop ") || has_words(frame, "multiprocessing/resource_tracker.py");
    };
    std::erase_if(found_, [&](const ProcessStack& it) {
      return (it.frames.empty() && it.state == ' ') || std::ranges::any_of(it.frames, is_helper);
    });
    return std::move(found_);
  }

 private:
  // "Process 12: python train.py" of py-spy; "process 12, rank 3, state S, ..." of ms-driver, "of rank 3" of children.
  void begin_process(std::string_view line) {
    const int pid = small_number(number_after(line, "rocess "), 0);
    has_main_ = false;
    if (line[0] == 'P' && pid == pid_) return;  // py-spy's text of a process that ms-driver's line has named
    pid_ = pid;
    is_left_out_ = is_helper_ = has_words(line, ", of rank ") || found_.size() >= kMostProcesses;
    if (is_left_out_) return;
    ProcessStack& added = found_.emplace_back();
    added.process = {.rank = small_number(number_after(line, ", rank "), -1), .host = host_, .pid = pid};
    if (const std::size_t at = line.find(", state "); at != line.npos && at + 8 < line.size())
      added.state = line[at + 8];
  }

  // py-spy names the main thread, faulthandler writes it last, and it is gdb's first.
  void begin_thread(std::string_view line) {
    if (is_helper_) return;
    if (found_.empty()) found_.push_back({.process = {.rank = -1, .host = host_, .pid = 0}, .frames = {}});
    const bool is_faulthandler = has_words(line, "(most recent call first)");
    const bool is_gdb = !is_faulthandler && !has_words(line, "(active") && !has_words(line, "(idle");
    const bool is_main =
        is_faulthandler || (is_gdb && line.starts_with("Thread 1 ")) || has_words(line, "\"MainThread\"");
    is_left_out_ = has_main_ && !is_faulthandler;
    if (is_left_out_) return;
    has_main_ = is_main && !is_faulthandler;
    found_.back().frames.clear();
  }

  // "name (file:line)" of all kinds; empty: not a frame.
  static std::string frame_of(std::string_view text) {
    text = text.substr(0, kLongestFrame);
    constexpr std::string_view kFile = "File \"", kLine = "\", line ", kIn = " in ";
    if (text.starts_with(kFile)) {  // File "x.py", line 12 in name
      const std::size_t line = text.find(kLine), in = text.rfind(kIn);
      if (line == text.npos || in == text.npos || in < line) return "";
      const std::string_view number = text.substr(line + kLine.size(), in - line - kLine.size());
      return std::string(text.substr(in + kIn.size())) + " (" +
             std::string(text.substr(kFile.size(), line - kFile.size())) + ":" + std::string(number) + ")";
    }
    if (text.starts_with("#")) {  // #0  0x00007f in name (arguments) at file.cc:12
      const std::size_t in = text.find(kIn), blank = text.find_first_not_of(" 0123456789#");
      const std::string_view name = in != text.npos && in < 40 ? text.substr(in + kIn.size())
                                    : blank != text.npos       ? text.substr(blank)
                                                               : std::string_view();
      return std::string(name.substr(0, name.find(" (")));
    }
    const std::size_t open = text.rfind(" (");  // name (file.py:12)
    return open != text.npos && text.ends_with(')') && has_words(text.substr(open), ":") ? std::string(text) : "";
  }

  const std::string host_;
  const int rank_;
  std::vector<ProcessStack> found_;
  int pid_ = 0;
  bool is_left_out_ = false, is_helper_ = false, has_main_ = false;
};

}  // namespace

bool is_stack_text(std::string_view beginning, bool) {
  const std::string_view text = beginning.substr(std::min(beginning.find_first_not_of(" \r\n"), beginning.size()));
  const std::string_view first = text.substr(0, text.find('\n'));
  if (first.starts_with("process ") && has_words(first, ", state ")) return true;
  if (first.starts_with("Process ") && has_words(beginning, "\nThread ")) return true;
  if (first.starts_with("Timeout (") || first.starts_with("Thread ") || first.starts_with("Current thread "))
    return has_words(beginning, "(most recent call first)") || has_words(first, "(idle") ||
           has_words(first, "(active") || has_words(beginning, "\n#0 ");
  return first.starts_with("[New LWP ") && has_words(beginning, "\n#0 ");
}

std::int64_t read_stacks(TextInput& input, RunTrace& trace) {
  StackText stacks(input.path());
  const std::string text = whole_text(input, kMostStacks_bytes);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    stacks.take(std::string_view(text).substr(at, end - at));
    at = end + 1;
  }
  for (ProcessStack& stack : stacks.finish()) trace.witnesses.stacks.push_back(std::move(stack));
  return 0;
}

}  // namespace ms::tracepp
