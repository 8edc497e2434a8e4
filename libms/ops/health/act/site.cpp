#include "health/act/site.h"

#include <algorithm>
#include <filesystem>
#include <tuple>

#include "base/lock_file.h"
#include "base/safe_file.h"
#include "base/text.h"
#include "health/act/state_json.h"
#include "slurm/hostlist.h"

namespace ms::health {
namespace {

constexpr std::size_t kMaxSiteBytes = std::size_t{256} << 10;  // of a node: its newest thousand events
constexpr double kSiteLock_s = 5;
constexpr std::string_view kSuffix = ".jsonl";

constexpr Refusal kSiteWriteRefusal{.kind = "site.write", .blame = Blame::node};

std::vector<HistoryEntry> entries_in(const std::string& text) {
  std::vector<HistoryEntry> entries;
  for (const std::string& line : split(text, '\n')) {
    if (auto entry = history_from_json(line)) entries.push_back(std::move(*entry));
  }
  return entries;
}

std::string text_of(const std::vector<HistoryEntry>& entries) {
  std::string text;
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    const std::string line = history_to_json(*entry) + "\n";
    if (text.size() + line.size() > kMaxSiteBytes) break;
    text.insert(0, line);
  }
  return text;
}

}  // namespace

bool is_shared_event(std::string_view event) { return event == "drain" || event == "withdrawn" || event == "undrain"; }

std::vector<HistoryEntry> merged(const std::vector<HistoryEntry>& a, const std::vector<HistoryEntry>& b) {
  std::map<std::tuple<double, std::string, std::string, std::uint32_t>, HistoryEntry> each;
  for (const auto* entries : {&a, &b}) {
    for (const HistoryEntry& entry : *entries) each[{entry.wall_s, entry.event, entry.code, entry.job_id}] = entry;
  }
  std::vector<HistoryEntry> all;
  for (auto& [key, entry] : each) all.push_back(std::move(entry));
  return all;
}

void share_history(const std::string& directory, const std::string& node, const std::vector<HistoryEntry>& own) {
  if (!slurm::is_host_name(node)) throw Error("site.write", Blame::node, "the node has no name for a file");
  const UniqueFd open = open_own_directory(directory, 0700, 0077, kSiteWriteRefusal);
  const UniqueFd lock = lock_at(open, node + ".lock", kSiteLock_s, kSiteWriteRefusal);
  const std::string name = node + std::string(kSuffix);
  const std::string before = read_at(open, name, kMaxSiteBytes, kSiteWriteRefusal).value_or("");
  std::vector<HistoryEntry> shared;
  std::copy_if(own.begin(), own.end(), std::back_inserter(shared),
               [](const HistoryEntry& entry) { return is_shared_event(entry.event); });
  const std::string after = text_of(merged(entries_in(before), shared));
  if (after != before) write_at(open, name, after, 0600, kSiteWriteRefusal);
}

std::map<std::string, std::vector<HistoryEntry>> read_site(const std::string& directory) {
  const Refusal refusal{.kind = "site.read", .blame = Blame::user};
  std::error_code error;
  if (!std::filesystem::is_directory(directory, error)) {  // to look must not make it
    throw user_error("site.read", fmt::format("there is no directory '{}'", directory),
                     "it is made by the first drain; is paths.site on storage that is mounted here?");
  }
  const UniqueFd open = open_own_directory(directory, 0700, 0077, refusal);
  std::map<std::string, std::vector<HistoryEntry>> site;
  for (const auto& file : std::filesystem::directory_iterator(directory)) {
    const std::string name = file.path().filename();
    if (!name.ends_with(kSuffix)) continue;
    const std::string node = name.substr(0, name.size() - kSuffix.size());
    if (slurm::is_host_name(node)) site[node] = entries_in(read_at(open, name, kMaxSiteBytes, refusal).value_or(""));
  }
  return site;
}

}  // namespace ms::health
