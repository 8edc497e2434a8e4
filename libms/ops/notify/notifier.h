// Decides what is sent when, and what is tried again. Knows neither the network nor the time: both are passed in.
//
// An event counts as sent to a target only when the target has said so; until then every look tries it again. A target
// that does not answer keeps its events in order and holds up no other target; an event that a target refuses does not
// hold up those behind it.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "notify/http.h"
#include "notify/messages.h"
#include "notify/notify_config.h"
#include "notify/outbox.h"

namespace ms::notify {

using SpooledEvents = std::vector<std::pair<std::string, health::Event>>;  // name and event, oldest first

struct Look {
  std::size_t num_sent = 0;     // events, counted for each target
  std::size_t num_waiting = 0;  // that could not be sent
  std::size_t num_too_old = 0;
};

class Notifier {
 public:
  using Post = std::function<HttpReply(const HttpRequest&)>;
  using Save = std::function<void(const Outbox&)>;
  using Leave = std::function<std::string(const health::Event&)>;  // returns why it could not

  // `save` is called whenever something was sent, before the next thing is; `leave` for what goes to config.relay_to.
  Notifier(const NotifyConfig& config, Outbox outbox, Clock& clock, Post post, Save save, Leave leave)
      : config_(config),
        outbox_(std::move(outbox)),
        clock_(clock),
        post_(std::move(post)),
        save_(std::move(save)),
        leave_(std::move(leave)) {}

  Look look(const SpooledEvents& events);
  bool all_know(const std::string& name) const;  // was the event sent to every target?
  const Outbox& outbox() const { return outbox_; }

 private:
  enum class Answer { taken, refused, none };

  Answer send(const char* target, HttpRequest request);
  // Returns the events that were not sent to the target; events that are too old count as sent.
  SpooledEvents unsent(const char* target, const SpooledEvents& events, Look& look);
  void tell_alertmanager(const SpooledEvents& events, Look& look);
  using Message = std::function<HttpRequest(std::span<const health::Event>)>;
  void tell_batches(const char* target, const Message& message, const SpooledEvents& events, Look& look);
  void tell_relay(const SpooledEvents& events, Look& look);
  void remind_alertmanager();
  // Returns an event's alerts for Alertmanager: it raises one, ends others, or both.
  std::vector<Alert> alerts_of(const health::Event& event) const;
  void stand(const health::Event& event);
  void mark(const char* target, const std::string& name, Look& look);

  const NotifyConfig& config_;
  Outbox outbox_;
  Clock& clock_;
  Post post_;
  Save save_;
  Leave leave_;
};

}  // namespace ms::notify
