#include "health/act/decide.h"

#include <algorithm>

#include "base/error.h"
#include "base/number.h"
#include "base/text.h"
#include "health/checks/registry.h"

namespace ms::health {
namespace {

constexpr std::string_view kPieceSeparator = "; ", kAlso = "; also ";
constexpr int kDefaultMaxRequeues = 5;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

// The 3 of "gpu 3" or "gpu 3 (0000:17:00.0)"; a PCI address is no index. nullopt: the entity is not one numbered GPU.
std::optional<int> gpu_index(std::string_view entity) {
  constexpr std::string_view kWord = "gpu ";
  for (std::size_t at = entity.find(kWord); at != std::string_view::npos; at = entity.find(kWord, at + 1)) {
    if (at > 0 && is_word(entity[at - 1])) continue;
    std::string_view rest = entity.substr(at + kWord.size());
    if (rest.starts_with('-')) continue;
    const auto index = take_number<int>(rest);
    if (!index) continue;
    if (rest.empty() || (!is_word(rest[0]) && rest[0] != ':' && rest[0] != '.')) return index;
    if (rest[0] == ':' && (rest.size() == 1 || rest[1] == ' ')) return index;
  }
  return std::nullopt;
}

bool of_the_job(const Finding& finding, const slurm::JobEnv* job) {
  if (job == nullptr || !job->gpus) return true;
  if (!finding.entity.starts_with("gpu ")) return true;  // of the node, or of something all GPUs share
  const std::optional<int> index = gpu_index(finding.entity);
  // An entity without a number is off the bus: the node has lost a GPU, and it is not known which job had it.
  return !index || std::count(job->gpus->begin(), job->gpus->end(), *index) > 0;
}

bool may_drain(const Finding& finding, const slurm::JobEnv* job) {
  if (finding.severity != Severity::critical) return false;
  const Check* check = find_check(passive_checks(), finding.code);
  if (check == nullptr || check->user_can_cause) return false;
  // A finding's own blame says whom to call, as for a mount of this node whose server is down; the check's decides.
  return (check->blame == Blame::node || check->blame == Blame::gpu) && of_the_job(finding, job);
}

// Replaces characters that scontrol, or scripts around it, could interpret, and the ';' before what people append;
// cuts the text to `max`.
std::string reason_text(std::string_view text, std::size_t max) {
  std::string plain = plain_text(text, std::string::npos);
  for (char& c : plain) {
    if (c == '=') c = ':';
    if (c == ';') c = ',';
    if (c == '[' || c == '{') c = '(';
    if (c == ']' || c == '}') c = ')';
    if (c == '"' || c == '\'' || c == '`' || c == '\\' || c == '|' || c == '$') c = '?';
  }
  return plain_text(plain, max);
}

// Slurm 22.05 clears the reason of a node that is back in service, 24.11 does not; versions between were not tried. A
// node that was ever drained or down would else be taken for somebody's for ever.
constexpr int kReasonsStaySince = 23;

bool is_left_behind(const slurm::Node& node) {
  const bool works = node.has_state("IDLE") || node.has_state("MIXED") || node.has_state("ALLOCATED");
  const bool stays = node.slurm_year >= kReasonsStaySince || node.reason == "Not responding";  // Slurm's own word
  return stays && works && !node.has_state("FAIL");
}

std::string_view without_prefix(std::string_view reason) {
  if (reason.starts_with(kReasonPrefix)) reason.remove_prefix(kReasonPrefix.size());
  return reason;
}

}  // namespace

std::vector<Finding> draining(const std::vector<Finding>& findings, const Policy& policy, const slurm::JobEnv* job,
                              bool jobs_run) {
  std::vector<Finding> result;
  for (const std::string& code : policy.act.allow) {
    for (const Finding& finding : findings) {
      const bool took_too_long = finding.unit == "s";
      if (finding.code == code && may_drain(finding, job) && !(jobs_run && took_too_long)) result.push_back(finding);
    }
  }
  return result;
}

bool has_jobs(const slurm::Node& node) {
  return std::ranges::any_of(node.states, [](const std::string& state) {
    return state.starts_with("ALLOC") || state.starts_with("MIX") || state == "COMPLETING";
  });
}

std::string drain_reason(const std::vector<Finding>& findings) {
  MS_ASSERT(!findings.empty(), "a drain has a reason");
  // A list as long as the reason says nothing more: the first is whole, the others are named.
  constexpr std::size_t kMaxOthers = 55;
  const auto named = [](const Finding& finding) {
    return finding.entity.empty() ? finding.code : fmt::format("{} {}", finding.code, finding.entity);
  };
  std::string others;
  for (std::size_t i = 1; i < findings.size(); ++i) others += (i == 1 ? "" : ", ") + named(findings[i]);
  if (!others.empty()) others = std::string(kAlso) + reason_text(others, kMaxOthers);
  const std::string first = named(findings[0]) + (findings[0].message.empty() ? "" : ": " + findings[0].message);
  return std::string(kReasonPrefix) + reason_text(first, kMaxReason - kReasonPrefix.size() - others.size()) + others;
}

bool is_ours(const slurm::Node& node) {
  return node.is_drained_or_draining() && node.reason.starts_with(kReasonPrefix);
}

std::vector<std::string> drain_users(const slurm::Config& config) {
  std::vector<std::string> users = {"root"};
  for (const std::string_view key : {"SlurmUser", "SlurmdUser"}) {
    const auto found = config.find(key);  // "slurm(64030)"
    if (found != config.end() && !found->second.empty())
      users.push_back(found->second.substr(0, found->second.find('(')));
  }
  return users;
}

bool is_free_of_people(std::string_view reason, const slurm::Node& node, const std::vector<std::string>& users) {
  if (!reason.starts_with(kReasonPrefix)) return false;
  const std::string_view code = without_prefix(reason).substr(0, without_prefix(reason).find(' '));
  const std::size_t dot = code.find('.');
  const bool is_code = dot != std::string_view::npos && dot > 0 && dot + 1 < code.size() && code.rfind('.') == dot &&
                       std::ranges::all_of(code, [](char c) { return is_word(c) || c == '.'; });
  if (!is_code) return false;
  if (code == without_prefix(reason)) return true;
  const std::string_view first = reason.substr(0, reason.find(kAlso));
  const std::string_view others = first == reason ? "" : reason.substr(first.size() + kAlso.size());
  const auto is_text = [](std::string_view text) { return reason_text(text, kMaxReason) == text; };
  return is_text(first) && is_text(others) && std::ranges::find(users, node.reason_user) != users.end();
}

DrainStep drain_step(const slurm::Node& node) {
  if (is_ours(node)) return DrainStep::stands_already;
  const bool free = node.reason.empty() || node.reason.starts_with(kReasonPrefix) || is_left_behind(node);
  return free && !node.is_drained_or_draining() ? DrainStep::drain : DrainStep::somebody_elses;
}

JobStep job_step(const slurm::Job& job, slurm::Preflight preflight, int max_requeues) {
  const std::string why_not = !job.batch     ? "it is no batch job"
                              : !job.requeue ? "it was submitted with --no-requeue"
                              : job.restarts >= max_requeues
                                  ? fmt::format("it was started again {} times and Slurm would hold it", job.restarts)
                                  : "";
  if (why_not.empty()) return {.fail = true, .why = "it starts again on other nodes"};
  if (preflight == slurm::Preflight::require) {
    return {.fail = true, .ends = true, .why = fmt::format("it insists on healthy nodes, though {}", why_not)};
  }
  return {.fail = false, .why = why_not};
}

int max_batch_requeues(const slurm::Config& config) {
  const auto found = config.find("MaxBatchRequeue");
  if (found == config.end()) return kDefaultMaxRequeues;
  return whole_number<int>(found->second).value_or(kDefaultMaxRequeues);
}

std::int64_t count_ours(const std::vector<slurm::Node>& nodes) {
  return std::count_if(nodes.begin(), nodes.end(), is_ours);
}

std::string drain_note(const std::string& node, bool before_start, int restarts, std::string_view reason) {
  return fmt::format("{}{} was drained {} start {}: {}", kCommentPrefix, node, before_start ? "before" : "after",
                     restarts + 1, reason_text(without_prefix(reason), kMaxReason));
}

std::string end_note(std::string_view why) {
  return fmt::format("{}this job ends before it began, since {}; submit it again, Slurm takes another node then",
                     kCommentPrefix, why);
}

std::optional<std::string> appended_comment(const std::string& comment, const std::string& note) {
  const std::vector<std::string> there = notes_in(comment);
  if (std::find(there.begin(), there.end(), note) != there.end()) return std::nullopt;
  std::string whole = comment.empty() ? note : comment + std::string(kPieceSeparator) + note;
  if (whole.size() > kMaxComment) return std::nullopt;
  return whole;
}

std::vector<std::string> notes_in(std::string_view comment) {
  std::vector<std::string> notes;
  const std::string between = std::string(kPieceSeparator) + std::string(kCommentPrefix);
  std::size_t begin = comment.starts_with(kCommentPrefix) ? 0 : comment.find(between);
  while (begin != std::string_view::npos && begin < comment.size()) {
    if (comment.substr(begin).starts_with(kPieceSeparator)) begin += kPieceSeparator.size();
    const std::size_t end = comment.find(between, begin);
    notes.push_back(plain_text(comment.substr(begin, end == std::string_view::npos ? end : end - begin), kMaxComment));
    begin = end;
  }
  return notes;
}

}  // namespace ms::health
