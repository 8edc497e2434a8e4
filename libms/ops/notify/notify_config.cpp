#include "notify/notify_config.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/man.h"
#include "base/text.h"
#include "notify/notify.h"

namespace ms::notify {
namespace {

constexpr double kDay_s = 86'400;

constexpr Field<NotifyConfig> kFields[] = {
    {"spool", &NotifyConfig::spool, "Directory in which ms-diag, as root, writes events: paths.spool of ms-diag.toml."},
    {"state", &NotifyConfig::state,
     "Directory in which the notifier records what was sent. Its user must be able to write there."},
    {"alertmanager", &NotifyConfig::alertmanager,
     "URL of Prometheus Alertmanager, as in http://alerts:9093. Empty: none."},
    {"slack", &NotifyConfig::slack,
     "URL of an incoming webhook of Slack. Empty: none. The URL is a secret: make the file readable only by the "
     "notifier's user."},
    {"mail_server", &NotifyConfig::mail_server,
     "URL of the site's mail server, as in smtp://mail:25 or, encrypted, smtps://mail:465. It must take mail of this "
     "host without a password. Empty: none."},
    {"mail_to", &NotifyConfig::mail_to, "Addresses that receive mail, as in [\"ops@site.example\"]."},
    {"mail_from", &NotifyConfig::mail_from, "Address of the sender of mail."},
    {"relay_to", &NotifyConfig::relay_to,
     "Directory shared by all nodes, for nodes without a connection to a destination. Events are written to a "
     "subdirectory named after the node, and the notifier with this directory as relay_from sends them. The directory "
     "must belong to the notifier's user, with the same user ID on all nodes. Empty: none."},
    {"relay_from", &NotifyConfig::relay_from,
     "The relay_to directory of the nodes; set it on one login node. Events in it are sent to alertmanager, slack and "
     "mail_to, and removed when all have received them. Empty: none."},
    {"proxy", &NotifyConfig::proxy,
     "HTTP proxy, as in http://proxy:3128, for all but mail. Empty: none. Proxy variables of the environment are "
     "ignored."},
    {"timeout", &NotifyConfig::timeout_s, "Timeout of one request.", Unit::seconds, 0.1, 60},
    {"retries", &NotifyConfig::retries,
     "Number of immediate retries of a failed request. After that, its events wait for the next poll.", Unit::none, 0,
     10},
    {"backoff", &NotifyConfig::backoff_s,
     "Pause before the first retry. It doubles with each retry, up to half a minute.", Unit::seconds, 0, 30},
    {"poll", &NotifyConfig::poll_s, "Interval for polling the spool, except with --once.", Unit::seconds, 1, kDay_s},
    {"resend", &NotifyConfig::resend_s,
     "Interval for resending alerts of drained nodes, so that Alertmanager has them after a restart. 0: never.",
     Unit::seconds, 0, kDay_s},
    {"max_age", &NotifyConfig::max_age_s, "Do not send events that are older than this when first seen.", Unit::seconds,
     60, 365 * kDay_s},
    {"drain_stays", &NotifyConfig::drain_stays_s,
     "Lifetime of a drain alert if ms-diag does not undrain the node, for example because someone resumed it by hand.",
     Unit::seconds, 60, 365 * kDay_s},
    {"event_stays", &NotifyConfig::event_stays_s,
     "Lifetime of alerts of events without an end: drains in mode observe, withdrawn drains, and repeated drains of a "
     "node (strikes).",
     Unit::seconds, 60, 365 * kDay_s},
};

bool is_plain(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

bool is_url(const std::string& url, const std::string& scheme) {
  const std::size_t host = url.starts_with(scheme + "://")    ? scheme.size() + 3
                           : url.starts_with(scheme + "s://") ? scheme.size() + 4
                                                              : 0;
  return host > 0 && url.size() > host && url.size() <= 2048 && url[host] != '/' && is_plain(url);
}

bool is_address(const std::string& text) {
  const std::size_t at = text.find('@');
  return at != std::string::npos && at > 0 && at + 1 < text.size() && text.find('@', at + 1) == std::string::npos &&
         text.size() <= 254 && is_plain(text) && text.find_first_of("<>,;:\"\\") == std::string::npos;
}

void validate_mail(const NotifyConfig& config, ConfigSchema& schema) {
  constexpr std::size_t kMostRecipients = 50;
  if (!config.mail_server.empty() && !is_url(config.mail_server, "smtp"))
    schema.add_problem("notify.mail_server", "notify.mail_server: must be a URL that begins with smtp:// or smtps://");
  if (config.mail_server.empty() != config.mail_to.empty())
    schema.add_problem("notify.mail_to", "set both notify.mail_server and notify.mail_to, or neither");
  if (config.mail_to.size() > kMostRecipients)
    schema.add_problem("notify.mail_to", fmt::format("notify.mail_to: at most {} addresses", kMostRecipients));
  std::vector<std::string> addresses = config.mail_to;
  addresses.push_back(config.mail_from);
  for (const std::string& address : addresses) {
    if (is_address(address)) continue;
    schema.add_problem(address == config.mail_from ? "notify.mail_from" : "notify.mail_to",
                       fmt::format("'{}' is not a mail address like ops@site.example", plain_text(address, 80)));
  }
}

void validate(const NotifyConfig& config, ConfigSchema& schema) {
  const auto url = [&](std::string_view key, const std::string& value) {
    if (!value.empty() && !is_url(value, "http")) {
      schema.add_problem(key, fmt::format("{}: must be a URL that begins with http:// or https://", key));
    }
  };
  url("notify.alertmanager", config.alertmanager);
  url("notify.slack", config.slack);
  url("notify.proxy", config.proxy);
  validate_mail(config, schema);
  if (config.alertmanager.empty() && config.slack.empty() && config.mail_to.empty() && config.relay_to.empty()) {
    schema.add_problem("notify.alertmanager",
                       "no destination: set notify.alertmanager, notify.slack, notify.mail_to or notify.relay_to");
  }
  if (!config.relay_from.empty() && !config.relay_to.empty()) {
    schema.add_problem("notify.relay_from",
                       "set either notify.relay_to (on nodes without a connection) or notify.relay_from (on the node "
                       "that sends for them), not both");
  }
  for (const auto& [key, path] : {std::pair<const char*, const std::string&>{"notify.spool", config.spool},
                                  std::pair<const char*, const std::string&>{"notify.state", config.state},
                                  std::pair<const char*, const std::string&>{"notify.relay_to", config.relay_to},
                                  std::pair<const char*, const std::string&>{"notify.relay_from", config.relay_from}}) {
    if (!path.starts_with('/') && !(path.empty() && std::string_view(key).starts_with("notify.relay"))) {
      schema.add_problem(key, fmt::format("{}: must be an absolute path, got '{}'", key, path));
    }
  }
}

}  // namespace

void bind(ConfigSchema& schema, NotifyConfig& config) {
  schema.section("notify", "Source and destinations of events.", config, kFields);
}

NotifyConfig load_notify_config(const std::string& path, const std::string& run) {
  NotifyConfig config;
  ConfigSchema schema;
  bind(schema, config);
  schema.load_file(path);
  if (!run.empty()) {
    const std::string driver = std::filesystem::absolute(run).string() + "/driver";
    if (::access(driver.c_str(), F_OK) != 0) {
      throw user_error("notify.run", fmt::format("ms-driver has not run in {}", run),
                       "pass the --run-dir of ms-driver run");
    }
    config.spool = driver + "/events";
    config.state = driver + "/notified";
    config.relay_from.clear();  // the nodes' events are for the service
  }
  validate(config, schema);
  schema.throw_if_problems();
  return config;
}

namespace {

std::string notify_text(std::string (*form)(const man::ConfigPage&, std::span<const ConfigRow>)) {
  NotifyConfig config;
  ConfigSchema schema;
  bind(schema, config);
  return form({.name = "ms-notify.toml",
               .summary = "destinations of the notifications of ms-diag notify",
               .description =
                   "ms-diag, as root, writes its decisions about a node as events to a spool. ms-diag notify runs "
                   "on the same node as an unprivileged user and sends them to Prometheus Alertmanager, to Slack "
                   "and by mail. Events that cannot be sent remain in the spool, which keeps the newest 1000, and "
                   "are retried at the next poll. Each destination receives an event once.\n\n"
                   "Events are the decisions of the toolkit: drains and undrains by the checks and by ms-diag repair "
                   "(which writes them on the head node, and one for a node that waits for a person), and those of "
                   "a run. A node that stops responding outside a run, and what administrators do themselves, are "
                   "not among them: watch Slurm for those.\n\n"
                   "Alerts have the labels alertname, code, node, severity and, if there was a job, job. The alert "
                   "of a drain is resolved when ms-diag undrains the node.\n\n"
                   "If compute nodes cannot reach Alertmanager, Slack or a mail server, set relay_to on them: their "
                   "notifiers then "
                   "write events to a directory that all nodes share. On a login node, the same service sends them "
                   "if its file sets relay_from. The directory must not be below /home, which is "
                   "hidden from the service. Installing the package creates its user, ms-notify, with any free user "
                   "ID. To get the same ID on all nodes, create the user before you install the package.\n\n"
                   "The command refuses to run as root, and so does ms-driver run --notify.\n\n"
                   "With --run, the events are those of a run of ms-driver: MsRunInterrupted, MsRunSlow, "
                   "MsRunFailed and MsRunEnded. spool and state are then in the run directory.\n\n"
                   "ms-diag --sample-notify prints a file with every key commented out.",
               .see_also = {"ms-diag(1)", "ms-diag.toml(5)"}},
              schema.reference());
}

}  // namespace

std::string notify_page() { return notify_text(man::config_page); }
std::string sample_notify() { return notify_text(man::sample_config); }

}  // namespace ms::notify
