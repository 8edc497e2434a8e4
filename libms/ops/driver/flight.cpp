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

namespace ms::driver {
namespace {

constexpr double kFlightJudge_s = 20;
constexpr std::size_t kMostDumps = 16384;

// The reasons of ms-tracepp hang that say so. Of a wrong order only the majority, or what a rank did before, tells that
// it is no rank that stopped with messages under way.
constexpr std::array<std::string_view, 5> kMismatches{"wrong_kind", "wrong_size", "wrong_dtype", "missing_call",
                                                      "extra_call"};
constexpr std::string_view kWrongOrder = "wrong_order";
constexpr double kDecided = 0.8;

bool is_mismatch(const Json& json, const Json& suspect) {
  const Json& group = suspect.at("group");
  // Ranks of different groups may well call different things.
  if (!group.is_number_unsigned() || json.at("groups").at(group.get<std::size_t>()).get<bool>("is_guessed")) {
    return false;
  }
  const std::string reason = suspect.get<std::string>("reason");
  return std::ranges::find(kMismatches, reason) != kMismatches.end() ||
         (reason == kWrongOrder && suspect.get<double>("confidence") >= kDecided);
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

std::optional<FlightVerdict> read_flight_verdict(std::string_view output) {
  const std::optional<Json> json = document_in(output);
  if (!json) return std::nullopt;
  try {
    const Json& suspects = json->at("suspects");
    if (suspects.empty()) return std::nullopt;
    const Json& first = suspects[0];
    return FlightVerdict{.rank = first.at("rank").is_null() ? -1 : first.get<int>("rank"),
                         .host = first.get<std::string>("host"),
                         .confidence = first.get<double>("confidence"),
                         .mismatch = is_mismatch(*json, first),
                         .why = plain_text(json->get<std::string>("sentence"), 300)};
  } catch (const JsonError&) { return std::nullopt; }
}

void FlightJudge::begin(const std::vector<std::string>& files, const std::string& output, double now_s) {
  command_.reset();
  output_ = output;
  if (files.empty()) return;
  std::vector<std::string> words{"ms-tracepp", "hang", "--json"};
  words.insert(words.end(), files.begin(), files.end());
  try {
    command_ =
        LongCommand::start(words, environment_with({}), output_ + ".json", output_ + ".status", output_ + ".log");
    began_s_ = now_s;
  } catch (const Error& error) { log::warn("driver", "the flight recorders are not judged: {}", error.message()); }
}

bool FlightJudge::busy(double now_s) {
  if (!command_ || command_->ended()) return false;
  if (now_s - began_s_ < kFlightJudge_s) return true;
  command_->signal(SIGKILL);
  command_.reset();
  return false;
}

std::optional<FlightVerdict> FlightJudge::take() {
  const std::string path = output_ + ".json";
  if (!command_ || access(path.c_str(), R_OK) != 0) return std::nullopt;
  command_.reset();
  return read_flight_verdict(read_file(path));
}

}  // namespace ms::driver
