// Events as Alertmanager, Slack and people's mail read them. Pure. The text of an event may quote what a user or a
// device wrote: it goes through the JSON encoder and, for Slack, loses what could be read as a command; in a mail a
// text of several lines becomes one, which makes no header.
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

// A mail, headers and text: the first event is its subject. A line of the text names what to do where that is known.
std::string mail_text(std::span<const health::Event> events, const std::string& from, std::span<const std::string> to,
                      double wall_s);

// "2026-11-21T02:40:11.123Z"
std::string rfc3339(double wall_s);

}  // namespace ms::notify
