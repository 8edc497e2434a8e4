// ms-notify.toml(5): where events come from, where they go, and how patient to be.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/config.h"

namespace ms::notify {

struct NotifyConfig {
  std::string spool = "/var/spool/ms-diag";
  std::string state = "/var/lib/ms-notify";
  std::string alertmanager;  // empty: none
  std::string slack;         // empty: none
  std::string mail_server;   // empty: none
  std::vector<std::string> mail_to;
  std::string mail_from = "ms-notify@localhost";
  std::string relay_to;    // empty: none
  std::string relay_from;  // empty: none
  std::string proxy;       // empty: none, whatever the environment says
  double timeout_s = 10;
  std::int64_t retries = 3;
  double backoff_s = 2;
  double poll_s = 15;
  double resend_s = 300;
  double max_age_s = 86'400;
  double drain_stays_s = 7 * 86'400;
  double event_stays_s = 3600;
};

void bind(ConfigSchema& schema, NotifyConfig& config);
// Reads and checks it; all problems come at once, as Error("config.invalid", user).
// With a `run`, the directory of a driven run, its events are the spool, and what was sent is remembered there.
NotifyConfig load_notify_config(const std::string& path, const std::string& run = "");

}  // namespace ms::notify
