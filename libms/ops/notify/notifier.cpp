#include "notify/notifier.h"

#include <algorithm>

#include "base/log.h"

namespace ms::notify {
namespace {

constexpr const char* kAlertmanager = "alertmanager";
constexpr const char* kSlack = "slack";
constexpr const char* kMail = "mail";
constexpr const char* kRelay = "relay";
constexpr double kLongestPause_s = 30;
constexpr std::size_t kBatch = 20;      // events of one message
constexpr std::size_t kReminders = 64;  // alerts of one request
constexpr std::size_t kShownOfReply = 200;

bool is_success(int status) { return status >= 200 && status < 300; }
// The target is there and will not want this event another time either. Anything else may pass.
bool is_refusal(int status) { return status >= 300 && status < 500 && status != 408 && status != 429; }

std::string printable(std::string_view text) {
  std::string result(text.substr(0, kShownOfReply));
  std::replace_if(
      result.begin(), result.end(), [](char c) { return c < ' ' || c > '~'; }, ' ');
  return result;
}

std::string problem_of(const HttpReply& reply) {
  if (reply.status == 0) return printable(reply.problem);
  return fmt::format("it answers {} {}", reply.status, printable(reply.body));
}

std::string alerts_url(std::string url) {
  while (url.ends_with('/')) url.pop_back();
  return url + "/api/v2/alerts";
}

bool same_alert(const health::Event& a, const health::Event& b) {
  return a.node == b.node && a.code == b.code && a.job_id == b.job_id;
}

bool ends_drains(const health::Event& event) {  // a node that is drained anew was resumed by hand before
  return event.kind == "undrain" || event.kind == "withdrawn" || event.kind == "drain";
}

// Events of these kinds last until somebody returns the node.
bool stands(const health::Event& event) { return event.kind == "drain" || event.kind == "bundled"; }

}  // namespace

Look Notifier::look(const SpooledEvents& events) {
  std::set<std::string> names;
  for (const auto& [name, event] : events) names.insert(name);
  outbox_.forget_all_but(names);
  save_(outbox_);  // if it cannot be remembered, nothing is sent
  Look result;
  if (!config_.alertmanager.empty()) tell_alertmanager(events, result);
  if (!config_.slack.empty()) {
    const auto message = [&](std::span<const health::Event> some) -> HttpRequest {
      return {.url = config_.slack, .body = slack_body(some)};
    };
    tell_batches(kSlack, message, events, result);
  }
  if (!config_.mail_to.empty()) {
    const auto message = [&](std::span<const health::Event> some) -> HttpRequest {
      return {.url = config_.mail_server,
              .body = mail_text(some, config_.mail_from, config_.mail_to, clock_.wall_s()),
              .mail_to = config_.mail_to,
              .mail_from = config_.mail_from};
    };
    tell_batches(kMail, message, events, result);
  }
  if (!config_.relay_to.empty()) tell_relay(events, result);
  return result;
}

bool Notifier::all_know(const std::string& name) const {
  return (config_.alertmanager.empty() || outbox_.is_sent(kAlertmanager, name)) &&
         (config_.slack.empty() || outbox_.is_sent(kSlack, name)) &&
         (config_.mail_to.empty() || outbox_.is_sent(kMail, name)) &&
         (config_.relay_to.empty() || outbox_.is_sent(kRelay, name));
}

Notifier::Answer Notifier::send(const char* target, HttpRequest request) {
  if (request.mail_to.empty()) request.proxy = config_.proxy;
  request.timeout_s = config_.timeout_s;
  double pause_s = config_.backoff_s;
  for (std::int64_t attempt = 0;; ++attempt) {
    const HttpReply reply = post_(request);
    if (is_success(reply.status)) return Answer::taken;
    if (is_refusal(reply.status)) {
      log::warn("notify", "{} refuses a message: {}", target, problem_of(reply));
      return Answer::refused;
    }
    if (attempt == config_.retries) {
      log::warn("notify", "{} cannot be told now, tried {} times: {}", target, attempt + 1, problem_of(reply));
      return Answer::none;
    }
    clock_.sleep_s(std::min(pause_s, kLongestPause_s));
    pause_s *= 2;
  }
}

SpooledEvents Notifier::unsent(const char* target, const SpooledEvents& events, Look& look) {
  SpooledEvents result;
  for (const auto& [name, event] : events) {
    if (outbox_.is_sent(target, name)) continue;
    if (clock_.wall_s() - event.wall_s > config_.max_age_s) {
      outbox_.sent[target].insert(name);
      ++look.num_too_old;
    } else {
      result.emplace_back(name, event);
    }
  }
  return result;
}

void Notifier::mark(const char* target, const std::string& name, Look& look) {
  outbox_.sent[target].insert(name);
  ++look.num_sent;
}

std::vector<Alert> Notifier::alerts_of(const health::Event& event) const {
  std::vector<Alert> alerts;
  if (ends_drains(event)) {
    for (const Standing& standing : outbox_.standing) {
      if (standing.event.node != event.node) continue;
      if (event.kind == "drain" && same_alert(standing.event, event)) continue;
      alerts.push_back({standing.event, event.wall_s});
    }
  }
  if (stands(event)) {
    alerts.push_back({event, event.wall_s + config_.drain_stays_s});
  } else if (event.kind != "undrain") {
    alerts.push_back({event, clock_.wall_s() + config_.event_stays_s});
  }
  return alerts;
}

void Notifier::stand(const health::Event& event) {
  if (ends_drains(event))
    std::erase_if(outbox_.standing, [&](const Standing& standing) { return standing.event.node == event.node; });
  if (stands(event)) {
    std::erase_if(outbox_.standing, [&](const Standing& standing) {
      return standing.event.kind == event.kind && same_alert(standing.event, event);
    });
    outbox_.standing.push_back({event, event.wall_s + config_.drain_stays_s, clock_.wall_s()});
  }
}

void Notifier::tell_alertmanager(const SpooledEvents& events, Look& look) {
  const SpooledEvents pending = unsent(kAlertmanager, events, look);
  for (std::size_t i = 0; i < pending.size(); ++i) {
    const auto& [name, event] = pending[i];
    const std::vector<Alert> alerts = alerts_of(event);
    const Answer answer =
        alerts.empty()
            ? Answer::taken
            : send(kAlertmanager, {.url = alerts_url(config_.alertmanager), .body = alertmanager_body(alerts)});
    if (answer == Answer::none) {
      look.num_waiting += pending.size() - i;
      return;
    }
    if (answer == Answer::refused) {
      ++look.num_waiting;
      continue;
    }
    stand(event);
    mark(kAlertmanager, name, look);
    save_(outbox_);
  }
  remind_alertmanager();
}

void Notifier::remind_alertmanager() {
  const double now = clock_.wall_s();
  if (std::erase_if(outbox_.standing, [&](const Standing& standing) { return standing.ends_wall_s <= now; }) > 0) {
    save_(outbox_);
  }
  std::vector<Alert> due;
  std::vector<Standing*> of;
  for (Standing& standing : outbox_.standing) {
    // A clock that was set back must not keep us silent.
    const double since = now - standing.sent_wall_s;
    if (config_.resend_s <= 0 || (since >= 0 && since < config_.resend_s)) continue;
    due.push_back({standing.event, standing.ends_wall_s});
    of.push_back(&standing);
  }
  for (std::size_t begin = 0; begin < due.size(); begin += kReminders) {
    const std::size_t count = std::min(kReminders, due.size() - begin);
    const std::span<const Alert> some(due.data() + begin, count);
    if (send(kAlertmanager, {.url = alerts_url(config_.alertmanager), .body = alertmanager_body(some)}) !=
        Answer::taken)
      return;
    for (std::size_t i = begin; i < begin + count; ++i) of[i]->sent_wall_s = now;
    save_(outbox_);
  }
}

void Notifier::tell_batches(const char* target, const Message& message, const SpooledEvents& events, Look& look) {
  const SpooledEvents pending = unsent(target, events, look);
  for (std::size_t begin = 0; begin < pending.size(); begin += kBatch) {
    const std::size_t end = std::min(pending.size(), begin + kBatch);
    std::vector<health::Event> some;
    for (std::size_t i = begin; i < end; ++i) some.push_back(pending[i].second);
    const Answer answer = send(target, message(some));
    if (answer == Answer::none) {
      look.num_waiting += pending.size() - begin;
      return;
    }
    if (answer == Answer::refused) {
      look.num_waiting += end - begin;
      continue;
    }
    for (std::size_t i = begin; i < end; ++i) mark(target, pending[i].first, look);
    save_(outbox_);
  }
}

void Notifier::tell_relay(const SpooledEvents& events, Look& look) {
  const SpooledEvents pending = unsent(kRelay, events, look);
  for (std::size_t i = 0; i < pending.size(); ++i) {
    const auto& [name, event] = pending[i];
    if (const std::string problem = leave_(event); !problem.empty()) {
      log::warn("notify", "the relay takes nothing now: {}", problem);
      look.num_waiting += pending.size() - i;
      return;
    }
    mark(kRelay, name, look);
    save_(outbox_);
  }
}

}  // namespace ms::notify
