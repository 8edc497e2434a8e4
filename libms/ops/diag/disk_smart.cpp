// disk.smart: what disks say of their own health, by smartctl.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "base/json.h"
#include "base/text.h"
#include "diag/tool.h"
#include "health/checks/check.h"

namespace ms::diag {
namespace {

constexpr double kSmartctl_s = 8;   // of one disk
constexpr double kAllDisks_s = 22;  // together, so that the check ends before its deadline
constexpr double kEnds_s = 4;       // more until each smartctl has ended, by SIGTERM or SIGKILL
constexpr double kLeast_s = 1;      // less is no time to answer in
constexpr std::size_t kAtOnce = 8;  // a controller with many disks answers one after the other

// The number at a path of keys; nullopt: it is not there.
std::optional<double> number_at(const Json& json, std::initializer_list<std::string_view> keys) {
  const Json* at = &json;
  for (const std::string_view key : keys) {
    at = at->find(key);
    if (at == nullptr) return std::nullopt;
  }
  return at->is_number() ? std::optional(at->get<double>()) : std::nullopt;
}

bool tells_health(const Json& json) {
  const Json* const status = json.find("smart_status");
  const Json* const passed = status == nullptr ? nullptr : status->find("passed");
  return passed != nullptr && passed->is_boolean();
}

// The disk is one that tells its health.
void judge_disk(const std::string& disk, const Json& json, std::vector<Finding>& findings) {
  const auto add = [&](std::string message, double measured, double limit) {
    findings.push_back(about(disk, Severity::warning, std::move(message), measured, limit));
  };
  if (!json.at("smart_status").at("passed").get<bool>()) add("says that it fails", 1, 0);
  constexpr std::string_view kNvme = "nvme_smart_health_information_log";
  const auto spare = number_at(json, {kNvme, "available_spare"});
  const auto least = number_at(json, {kNvme, "available_spare_threshold"});
  if (spare && least && *spare < *least) add(fmt::format("{:g}% of its spare blocks are left", *spare), *spare, *least);
  const auto used = number_at(json, {kNvme, "percentage_used"});
  if (used && *used >= 100) add(fmt::format("{:g}% of its rated endurance is used", *used), *used, 100);
  const auto media = number_at(json, {kNvme, "media_errors"});
  if (media && *media > 0) add(fmt::format("{:g} media errors", *media), *media, 0);
  // ATA counts sectors that wait to be replaced, and that could not be read when it looked.
  const Json* const attributes = json.find("ata_smart_attributes");
  const Json* const table = attributes == nullptr ? nullptr : attributes->find("table");
  for (std::size_t i = 0; table != nullptr && table->is_array() && i < table->size(); ++i) {
    const auto id = number_at(table->at(i), {"id"}), raw = number_at(table->at(i), {"raw", "value"});
    if (!id || !raw || *raw <= 0) continue;
    if (*id == 197) add(fmt::format("{:g} sectors wait to be replaced", *raw), *raw, 0);
    if (*id == 198) add(fmt::format("{:g} sectors cannot be read", *raw), *raw, 0);
  }
}

// Answers of all disks, in their order. Shared with the threads that ask, which are left behind with this process where
// a smartctl does not end: not even SIGKILL ends one for which the kernel waits.
class Answers {
 public:
  Answers(std::string smartctl, std::vector<std::string> disks)
      : smartctl_(std::move(smartctl)),
        disks_(std::move(disks)),
        answers_(disks_.size(), ToolAnswer{.why = "not asked, as others took too long"}) {}

  // For each of several threads. Disks for which no time is left are not asked.
  void ask() {
    for (std::size_t i = next_++; i < disks_.size(); i = next_++) {
      const double left_s = std::min(kSmartctl_s, end_s_ - monotonic_s());
      if (left_s < kLeast_s) return;
      set(i, std::nullopt);
      set(i, ask_tool({smartctl_, "--json", "--all", "/dev/" + disks_[i]}, "paths.smartctl", left_s));
    }
  }
  std::chrono::duration<double> until_all_ended() const {
    return std::chrono::duration<double>(std::max(0.0, end_s_ + kEnds_s - monotonic_s()));
  }
  // nullopt for a disk whose smartctl has not ended.
  std::vector<std::optional<ToolAnswer>> all() const {
    const std::lock_guard lock(mutex_);
    return answers_;
  }

 private:
  void set(std::size_t disk, std::optional<ToolAnswer> answer) {
    const std::lock_guard lock(mutex_);
    answers_[disk] = std::move(answer);
  }

  const std::string smartctl_;
  const std::vector<std::string> disks_;
  const double end_s_ = monotonic_s() + kAllDisks_s;
  std::atomic<std::size_t> next_ = 0;
  mutable std::mutex mutex_;  // guards answers_
  std::vector<std::optional<ToolAnswer>> answers_;
};

std::vector<std::optional<ToolAnswer>> ask_all(const std::string& smartctl, const std::vector<std::string>& disks) {
  const auto answers = std::make_shared<Answers>(smartctl, disks);
  std::vector<std::future<void>> askers;
  for (std::size_t i = 0; i < std::min(kAtOnce, disks.size()); ++i) {
    std::packaged_task<void()> task([answers] { answers->ask(); });
    askers.push_back(task.get_future());
    std::thread(std::move(task)).detach();
  }
  for (std::future<void>& asker : askers) {
    if (asker.wait_for(answers->until_all_ended()) == std::future_status::ready) asker.get();
  }
  return answers->all();
}

health::Result ask_disks(health::Evidence& evidence) {
  std::vector<std::string> disks;
  for (const std::string& name : evidence.root().list("/sys/block")) {
    if (name.starts_with("nvme") || name.starts_with("sd")) disks.push_back(name);
  }
  if (disks.empty()) return health::skipped("there is no disk of NVMe, SATA or SAS");
  std::vector<Finding> findings;
  std::vector<std::string> silent;
  const std::vector<std::optional<ToolAnswer>> answers = ask_all(evidence.policy().paths.smartctl, disks);
  for (std::size_t i = 0; i < disks.size(); ++i) {
    if (!answers[i]) {
      findings.push_back({.severity = Severity::warning,
                          .entity = disks[i],
                          .message = "smartctl waits for it in the kernel, and SIGKILL does not end it",
                          .remedy = "The disk or its controller does not answer: look for its timeouts and resets in "
                                    "dmesg. What waits for it ends at a reboot; if it comes back, replace the disk."});
      continue;
    }
    // Its exit status is bits of what it found, so what it prints counts.
    const std::string& why = answers[i]->why;
    const std::optional<Json> json = why.empty() ? Json::try_parse(answers[i]->out) : std::nullopt;
    if (json && tells_health(*json)) {
      judge_disk(disks[i], *json, findings);
    } else {
      silent.push_back(fmt::format("{}: {}", disks[i], why.empty() ? "it does not tell its health" : why));
    }
  }
  if (silent.size() == disks.size()) return health::skipped(silent[0]);
  const auto stuck =
      static_cast<std::size_t>(std::ranges::count_if(answers, [](const auto& answer) { return !answer; }));
  const std::string note = fmt::format("{}{}{}", plural(disks.size() - silent.size() - stuck, "disk"),
                                       silent.empty() ? "" : "; ", fmt::join(silent, "; "));
  health::Result result = health::judged(std::move(findings), note);
  result.note = note;
  return result;
}

}  // namespace

extern constinit const health::Check kDiskSmart = {
    .code = "disk.smart",
    .level = 2,
    .lane = health::Lane::active,
    .summary = "disks that report a failure or are worn out",
    .needs = "smartctl (paths.smartctl), and root",
    .deadline_s = 30,
    .proved = "a fake file tree and a fake smartctl",
    .explain =
        "Queries every NVMe, SATA and SAS disk with smartctl. It warns of a disk that reports a failure; of an NVMe "
        "disk with media errors, fewer spare blocks than its threshold, or its rated endurance used up; and of a SATA "
        "disk with pending or unreadable sectors. Disks behind a RAID controller often report nothing, and a disk that "
        "does not respond within seconds is not judged; the note lists them. A disk on which smartctl cannot be killed "
        "is a warning, since the kernel itself waits for it. Not yet seen on real hardware, so it only warns.",
    .remedy = "Copy its data elsewhere, and replace it; smartctl --all shows the details.",
    .run = ask_disks};

}  // namespace ms::diag
