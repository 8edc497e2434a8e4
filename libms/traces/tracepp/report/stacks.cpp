#include "tracepp/report/stacks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <string_view>

#include "base/text.h"

namespace ms::tracepp {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kSuspects = 4, kFrames = 12, kMostFiles = 100'000, kMostFile_bytes = std::size_t{1} << 20;
constexpr std::size_t kWidest = 160;
// The values of a GPU that are shown, as ms-diag collect names them; the file has the rest.
constexpr std::array<std::string_view, 10> kShown = {
    "lost",         "temperature_c",   "power_w",      "sm_clock_mhz", "throttle_reasons",
    "busy_percent", "ecc_uncorrected", "remap_failed", "xids",         "last_xid"};

struct StackFile {
  fs::path path;
  std::string text;
};

// Returns the files of the newest start beside the traces.
std::vector<StackFile> read_evidence(const std::vector<std::string>& paths) {
  std::error_code error;
  fs::path newest;
  fs::file_time_type newest_time = fs::file_time_type::min();
  for (const std::string& path : paths) {
    const fs::path here = fs::absolute(path, error).lexically_normal();
    const fs::path above = here.has_filename() ? here.parent_path() : here.parent_path().parent_path();
    for (const fs::path& run : {here, above, above.parent_path()}) {
      for (fs::directory_iterator at(run / "evidence", error), end; !error && at != end; at.increment(error)) {
        const fs::file_time_type time = fs::last_write_time(at->path(), error);
        if (!error && at->is_directory(error) && time > newest_time) newest = at->path(), newest_time = time;
      }
    }
  }
  std::vector<StackFile> files;
  if (newest.empty()) return files;
  for (fs::directory_iterator at(newest, error), end; !error && at != end && files.size() < kMostFiles;
       at.increment(error)) {
    if (!at->is_regular_file(error)) continue;
    std::ifstream file(at->path());
    std::string text(kMostFile_bytes, '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(file.gcount()));
    files.push_back({at->path(), std::move(text)});
  }
  std::ranges::sort(files, {}, &StackFile::path);
  return files;
}

// Returns the lines from the one that begins with `first`, until one begins another thread or process.
std::optional<std::string> paragraph(const std::string& text, const std::string& first) {
  const std::size_t begin = text.starts_with(first) ? 0 : text.find("\n" + first);
  if (begin == std::string::npos) return std::nullopt;
  const bool of_thread = first.starts_with("thread ");
  std::string found;
  std::size_t lines = 0;
  for (const std::string& line : split(std::string_view(text).substr(begin == 0 ? 0 : begin + 1), '\n')) {
    const bool goes_on =
        line.starts_with("#") || line == "did not answer" || (!of_thread && line.starts_with("thread "));
    if (lines > kFrames || (lines > 0 && !goes_on)) break;
    ++lines;
    found += "    " + plain_text(line, kWidest) + "\n";
  }
  return found;
}

// Returns what a file of the suspect's own process says of it.
std::optional<std::string> told_by_itself(const std::string& text, const HangSuspect& suspect) {
  if (text.find(fmt::format("\nprocess {}\n", suspect.pid)) == std::string::npos) return std::nullopt;
  for (std::size_t at = text.find("\nthread "); at != std::string::npos; at = text.find("\nthread ", at + 1)) {
    const std::string line = text.substr(at + 1, text.find('\n', at + 1) - at - 1);
    if (line.find(fmt::format(" rank {} ", suspect.rank)) != std::string::npos) return paragraph(text, line);
  }
  return paragraph(text, fmt::format("thread {} ", suspect.pid));
}

// Returns what the file of another process, which has looked at it, says of the suspect's.
std::optional<std::string> told_by_another(const std::string& text, const HangSuspect& suspect) {
  return paragraph(text, fmt::format("process {}, which is blamed", suspect.pid));
}

// Returns what a file of the node's devices says of its GPUs, and what it could not say.
std::string told_by_devices(const StackFile& file) {
  std::string told;
  for (const std::string& line : split(file.text, '\n')) {
    const std::size_t colon = line.find(": ");
    if (colon == std::string::npos || !(line.starts_with("gpu") || line.starts_with("not read"))) continue;
    std::string shown = line;
    if (line.starts_with("gpu")) {
      std::vector<std::string> values = split(std::string_view(line).substr(colon + 2), ',');
      std::erase_if(values, [](const std::string& value) {
        return std::ranges::find(kShown, std::string_view(value).substr(0, value.find(' '))) == kShown.end();
      });
      shown = fmt::format("{}: {}", line.substr(0, colon), fmt::join(values, ", "));
    }
    told += "    " + plain_text(shown, kWidest) + "\n";
  }
  if (told.empty()) return "";
  return fmt::format("  what the devices of its node said is in {}\n{}", plain_text(file.path.string(), 1000), told);
}

}  // namespace

std::string suspect_stacks(const std::vector<std::string>& paths, const Hang& hang) {
  if (hang.suspects.empty()) return "";
  const std::vector<StackFile> files = read_evidence(paths);
  std::string text;
  std::set<std::string> hosts;  // whose devices were shown
  for (std::size_t i = 0; i < std::min(hang.suspects.size(), kSuspects); ++i) {
    const HangSuspect& suspect = hang.suspects[i];
    for (const StackFile& file : files) {
      const bool is_its_nodes = file.path.filename() == fmt::format("devices-{}.txt", suspect.host);
      if (is_its_nodes && hosts.insert(suspect.host).second) text += told_by_devices(file);
    }
    if (suspect.pid <= 0) continue;
    bool is_told = false;
    for (const auto& teller : {told_by_itself, told_by_another}) {
      for (const StackFile& file : files) {
        const std::optional<std::string> told = is_told ? std::nullopt : teller(file.text, suspect);
        if (!told) continue;
        text += fmt::format("  where rank {} stood, and the other threads, is in {}\n{}", suspect.rank,
                            plain_text(file.path.string(), 1000), *told);
        is_told = true;
      }
    }
  }
  return text;
}

}  // namespace ms::tracepp
