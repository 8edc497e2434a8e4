// One POST, bounded in every way: only http and https, no redirects, certificates verified, no proxy but the given one,
// a deadline, and a reply of which only the beginning is kept.
#pragma once

#include <string>

namespace ms::notify {

struct HttpRequest {
  std::string url;
  std::string body;  // JSON
  std::string proxy = {};
  double timeout_s = 10;
};

struct HttpReply {
  int status = 0;            // 0: there was none
  std::string body = {};     // its beginning
  std::string problem = {};  // why there was none
};

HttpReply http_post(const HttpRequest& request);

}  // namespace ms::notify
