#include "driver/flight.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/sysroot.h"
#include "base/text.h"
#include "base/user_path.h"

namespace ms::driver {
namespace {

constexpr double kHangJudge_s = 20;
constexpr std::size_t kMostDumps = 16384, kMostLog_bytes = std::size_t{16} << 20;

// The reasons of ms-tracepp hang that say so. Of a wrong order only the majority, or what a rank did before, tells that
// it is no rank that stopped with messages under way.
constexpr std::array<std::string_view, 5> kMismatches{"wrong_kind", "wrong_size", "wrong_dtype", "missing_call",
                                                      "extra_call"};
constexpr std::string_view kWrongOrder = "wrong_order";
constexpr double kDecided = 0.8;

bool is_mismatch(const Json& json, const Json& suspect) {
  const std::string reason = suspect.get<std::string>("reason");
  const bool is_other_call = std::ranges::find(kMismatches, reason) != kMismatches.end();
  const bool is_decided = suspect.get<double>("confidence") >= kDecided;
  const Json& group = suspect.at("group");
  if (!group.is_number_unsigned()) return is_other_call && is_decided;  // other sources than recorders tell
  // Ranks of different groups may well call different things.
  if (json.at("groups").at(group.get<std::size_t>()).get<bool>("is_guessed")) return false;
  return is_other_call || (reason == kWrongOrder && is_decided);
}

// Returns what was printed since the newest attempt of ms-driver began: lines before are of other hangs.
std::string_view of_newest_attempt(std::string_view log) {
  constexpr std::string_view kBegins = " driver: attempt ";
  for (std::size_t at = log.rfind(kBegins); at != log.npos && at > 0; at = log.rfind(kBegins, at - 1)) {
    const std::string_view rest = log.substr(at + kBegins.size());
    const std::size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
    if (digits > 0 && rest.substr(digits).starts_with(" on ")) return log.substr(at);
  }
  return log;
}

HangFault fault_in(const Json& json, const Json& suspect) {
  if (is_mismatch(json, suspect)) return HangFault::mismatch;
  const std::string fault = suspect.get<std::string>("fault");
  if (fault == "program") return HangFault::program;
  return fault == "host" || fault == "network" || fault == "device" ? HangFault::node : HangFault::unknown;
}

}  // namespace

std::string flight_prefix(const std::function<const char*(const char*)>& variable) {
  for (const char* name : {"TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"}) {
    if (const char* value = variable(name); value != nullptr && *value != '\0') return value;
  }
  return {};
}

std::vector<std::string> flight_files(const std::string& prefix, double since_s) {
  if (prefix.empty() || prefix[0] != '/') return {};
  const std::string directory = parent_directory(prefix);
  const std::string_view start = std::string_view(prefix).substr(prefix.rfind('/') + 1);
  std::vector<std::string> files;
  for (const std::string& name : Sysroot().list(directory)) {
    const std::string path = directory + "/" + name;
    struct stat status {};
    if (!name.starts_with(start) || lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    // In a directory such as /tmp, another user could lay a dump that accuses a node, or a second name of one.
    if ((status.st_uid != geteuid() && status.st_uid != 0) || status.st_nlink > 1) continue;
    if (static_cast<double>(status.st_mtime) >= since_s && files.size() < kMostDumps) files.push_back(path);
  }
  return files;
}

std::vector<std::string> evidence_files(const std::string& dir, int attempt, double since_s) {
  const std::string start = fmt::format("{}/attempt-{}.", dir, attempt);
  std::vector<std::string> files = flight_files(start, since_s);
  std::erase_if(files, [&](const std::string& path) {
    const std::string_view name = std::string_view(path).substr(start.size());
    return !name.ends_with("stacks") && !name.starts_with("ras.") && name != "heartbeats.json";
  });
  return files;
}

void copy_log(const std::string& log, const std::string& copy, std::int64_t until_bytes) {
  const std::string end = read_user_file_end(log, kMostLog_bytes, until_bytes);
  const std::size_t first = end.size() < kMostLog_bytes ? 0 : end.find('\n') + 1;  // npos + 1 is 0
  write_file_atomic(copy, of_newest_attempt(std::string_view(end).substr(first)));
}

std::optional<HangVerdict> read_hang_verdict(std::string_view output) {
  const std::optional<Json> json = document_in(output);
  if (!json) return std::nullopt;
  try {
    const Json& suspects = json->at("suspects");
    if (suspects.empty()) return std::nullopt;
    const Json& first = suspects[0];
    return HangVerdict{.rank = first.at("rank").is_null() ? -1 : first.get<int>("rank"),
                       .host = first.get<std::string>("host"),
                       .confidence = first.get<double>("confidence"),
                       .fault = fault_in(*json, first),
                       .why = plain_text(json->get<std::string>("sentence"), 300)};
  } catch (const JsonError&) { return std::nullopt; }
}

void HangJudge::begin(std::vector<std::string> files, const std::string& log, std::int64_t until_bytes,
                      const std::string& output, double now_s) {
  command_.reset();
  output_ = output;
  files.push_back(output_ + ".input.log");
  std::vector<std::string> words{"ms-tracepp", "hang", "--json"};
  words.insert(words.end(), files.begin(), files.end());
  try {
    copy_log(log, files.back(), until_bytes);
    command_ =
        LongCommand::start(words, environment_with({}), output_ + ".json", output_ + ".status", output_ + ".log");
    began_s_ = now_s;
  } catch (const Error& error) { log::warn("driver", "the evidence is not judged: {}", error.message()); }
}

bool HangJudge::busy(double now_s) {
  if (!command_ || command_->ended()) return false;
  if (now_s - began_s_ < kHangJudge_s) return true;
  command_->signal(SIGKILL);
  command_.reset();
  return false;
}

std::optional<HangVerdict> HangJudge::take() {
  const std::string path = output_ + ".json";
  if (!command_ || access(path.c_str(), R_OK) != 0) return std::nullopt;
  command_.reset();
  return read_hang_verdict(read_file(path));
}

}  // namespace ms::driver
