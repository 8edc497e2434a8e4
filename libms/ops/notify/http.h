// One POST, or one mail by SMTP, bounded in every way: no redirects, certificates verified, no proxy but the given one,
// a deadline, and a reply of which only the beginning is kept.
#pragma once

#include <string>
#include <vector>

namespace ms::notify {

struct HttpRequest {
  std::string url;   // http, https; of a mail smtp or smtps
  std::string body;  // JSON; of a mail its headers and text
  std::vector<std::string> mail_to = {};
  std::string mail_from = {};
  std::string proxy = {};
  double timeout_s = 10;
};

struct HttpReply {
  int status = 0;            // of HTTP, also of a mail: 200 taken, 422 refused, 503 not now; 0: there was no reply
  std::string body = {};     // its beginning
  std::string problem = {};  // why there was none
};

HttpReply http_post(const HttpRequest& request);

}  // namespace ms::notify
