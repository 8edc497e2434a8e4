#include "notify/messages.h"

#include <fmt/chrono.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <ctime>

#include "base/json.h"
#include "base/text.h"
#include "health/checks/registry.h"

namespace ms::notify {
namespace {

struct Kind {
  std::string_view kind;
  std::string_view alertname;
  std::string_view severity;
  std::string_view words;        // "node02 WORDS gpu.ecc"; "WORDS hang" of a run
  std::string_view remedy = {};  // where no check of the event's code has one
};
constexpr Kind kKinds[] = {
    {"drain", "MsDiagDrained", "critical", "was drained:"},
    {"would-drain", "MsDiagWouldDrain", "warning", "would have been drained:"},
    {"withdrawn", "MsDiagWithdrawn", "warning", "was not kept drained, too many nodes are:"},
    {"bundled", "MsDiagNeedsPerson", "critical", "stays drained, no remedy helped:",
     "the bundle has the evidence for the vendor's ticket; once mended, ms-diag undrain --verified returns the node"},
    {"undrain", "MsDiagUndrained", "info", "was put back into service after"},
    {"strike", "MsDiagStrike", "warning", "failed again:"},
    {"no-policy", "MsDiagNoPolicy", "critical", "checks nothing, jobs start unchecked:"},
    {"run-interrupted", "MsRunInterrupted", "warning",
     "run interrupted:", "ms-driver restarts it; ms-driver report RUN_DIR says which nodes were left out and why"},
    {"run-slow", "MsRunSlow", "warning", "run got slower:",
     "ms-driver status RUN_DIR names the node if one is at fault; check it with ms-diag run --level 2, or replace it "
     "with ms-driver run --replace-slow"},
    {"run-queued", "MsRunQueued", "warning", "run stopped, its job is queued again:",
     "squeue shows when it starts; ms-driver report RUN_DIR says why it stopped"},
    {"run-failed", "MsRunFailed", "critical", "run ended:",
     "read ms-driver report RUN_DIR: it says what ended the run and what to do before it is started again"},
    {"run-ended", "MsRunEnded", "info", "run ended:"},
};
constexpr Kind kUnknownKind{"", "MsDiagEvent", "warning", "tells:"};
constexpr std::size_t kMostBytes = 2048;  // of one text of an event

const Kind& kind_of(const health::Event& event) {
  const auto found =
      std::find_if(std::begin(kKinds), std::end(kKinds), [&](const Kind& kind) { return kind.kind == event.kind; });
  return found == std::end(kKinds) ? kUnknownKind : *found;
}

std::string_view remedy_of(const health::Event& event) {
  const health::Check* check = health::find_check(health::passive_checks(), event.code);
  return check == nullptr ? kind_of(event).remedy : check->remedy;
}

// Encodes a document; bytes that are not UTF-8 are replaced.
std::string encode(const Json& json) { return json.dump(); }

std::string bounded(std::string_view text) { return std::string(text.substr(0, kMostBytes)); }

std::string summary_of(const health::Event& event) {
  const std::string_view words = kind_of(event).words;
  // A run is not one node; the message says which are accused.
  std::string text = event.kind.starts_with("run-") ? fmt::format("{} {}", words, event.code)
                                                    : fmt::format("{} {} {}", event.node, words, event.code);
  if (event.job_id != 0) text += fmt::format(" (job {})", event.job_id);
  return text;
}

// The three characters that Slack reads as the beginning of something, as in <!channel>; and a line stays a line.
std::string slack_text(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '&') {
      result += "&amp;";
    } else if (c == '<') {
      result += "&lt;";
    } else if (c == '>') {
      result += "&gt;";
    } else {
      result += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    }
  }
  return result;
}

}  // namespace

std::string rfc3339(double wall_s) {
  const double bounded_s = std::clamp(wall_s, 0.0, 253'402'300'799.0);  // the last second of the year 9999
  const auto milliseconds = static_cast<std::int64_t>(std::llround(bounded_s * 1000));
  const std::time_t seconds = milliseconds / 1000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec, milliseconds % 1000);
}

std::string alertmanager_body(std::span<const Alert> alerts) {
  Json body = Json::array();
  for (const Alert& alert : alerts) {
    const health::Event& event = alert.event;
    const Kind& kind = kind_of(event);
    Json labels{{"alertname", kind.alertname}, {"severity", kind.severity}};
    if (!event.code.empty()) labels["code"] = bounded(event.code);  // an empty label is none
    if (!event.node.empty()) labels["node"] = bounded(event.node);
    if (event.job_id != 0) labels["job"] = std::to_string(event.job_id);
    Json annotations{{"summary", bounded(summary_of(event))}, {"description", bounded(event.message)}};
    if (event.strikes > 0) annotations["strikes"] = std::to_string(event.strikes);
    if (const std::string_view remedy = remedy_of(event); !remedy.empty()) annotations["remedy"] = remedy;
    body.push_back({{"labels", labels},
                    {"annotations", annotations},
                    {"startsAt", rfc3339(event.wall_s)},
                    {"endsAt", rfc3339(std::max(alert.ends_wall_s, event.wall_s))}});
  }
  return encode(body);
}

std::string mail_text(std::span<const health::Event> events, const std::string& from, std::span<const std::string> to,
                      double wall_s) {
  constexpr std::size_t kSubject = 150;
  const auto line = [](std::string_view text) { return plain_text(bounded(text), text.size()); };
  const health::Event& first = events.front();
  const std::time_t seconds = static_cast<std::time_t>(wall_s);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  std::string subject = fmt::format("[ms] {}: {}", kind_of(first).severity, plain_text(summary_of(first), kSubject));
  std::ranges::replace_if(
      subject, [](char c) { return c < ' ' || c > '~'; }, '?');
  std::string text = fmt::format(
      "From: {}\r\nTo: {}\r\nSubject: {}{}\r\nDate: {:%a, %d %b %Y %H:%M:%S} +0000\r\nMIME-Version: 1.0\r\n"
      "Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\nAuto-Submitted: "
      "auto-generated\r\n",
      from, fmt::join(to, ", "), subject, events.size() > 1 ? fmt::format(" (and {} more)", events.size() - 1) : "",
      parts);
  for (const health::Event& event : events) {
    text += fmt::format("\r\n{}  {}: {}\r\n", rfc3339(event.wall_s), kind_of(event).severity, line(summary_of(event)));
    if (!event.message.empty()) text += fmt::format("  {}\r\n", line(event.message));
    if (const std::string_view remedy = remedy_of(event); !remedy.empty())
      text += fmt::format("  What to do: {}\r\n", remedy);
  }
  return text;
}

std::string slack_body(std::span<const health::Event> events) {
  std::string text;
  for (const health::Event& event : events) {
    if (!text.empty()) text += '\n';
    text += fmt::format("*{}* {}", kind_of(event).severity, slack_text(bounded(summary_of(event))));
    if (!event.message.empty()) text += " - " + slack_text(bounded(event.message));
    text += fmt::format(" [{}]", rfc3339(event.wall_s));
  }
  return encode({{"text", text}});
}

}  // namespace ms::notify
