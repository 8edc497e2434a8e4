// Events as Alertmanager and Slack read them. Pure. The text of an event may quote what a user or a device wrote: it
// goes through the JSON encoder and, for Slack, loses what could be read as a command.
#pragma once

#include <span>
#include <string>

#include "health/act/spool.h"

namespace ms::notify {

struct Alert {
  health::Event event;
  double ends_wall_s = 0;  // in the past: it is resolved
};

// The body of POST /api/v2/alerts.
std::string alertmanager_body(std::span<const Alert> alerts);
// The body for an incoming webhook: one message, a line an event.
std::string slack_body(std::span<const health::Event> events);

// "2026-11-21T02:40:11.123Z"
std::string rfc3339(double wall_s);

}  // namespace ms::notify
