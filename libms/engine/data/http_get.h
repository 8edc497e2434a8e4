// GET requests by libcurl, which is loaded by the first, one after another over a connection that is kept open. No
// redirects; certificates are verified; a deadline; a reply of bounded size. A proxy is the environment's (https_proxy,
// no_proxy).
#pragma once

#include <cstddef>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

namespace ms::data {

struct HttpGet {
  std::string url;                        // http or https
  std::vector<std::string> headers = {};  // "Name: value"
  std::string range = {};                 // of bytes, both included: "0-99"; empty: all
  std::string sigv4 = {};                 // signs as AWS does, "aws:amz:REGION:s3"; empty: not signed
  std::string credentials = {};           // for that, "ID:SECRET"
  std::string ca_bundle = {};             // a file of certificates that are trusted; empty: the system's
  std::size_t most_bytes = 0;             // of the body
  double timeout_s = 30;
};

struct HttpGot {
  int status = 0;            // 0: there was no reply
  std::string problem = {};  // why not
  std::string body = {}, etag = {}, content_range = {};
};

// Used by one thread at a time.
class HttpConnection {
 public:
  // Error("data.object", user): there is no libcurl on this machine, or this build is one without it.
  HttpConnection();
  ~HttpConnection();
  HttpConnection(HttpConnection&&) noexcept;
  HttpConnection& operator=(HttpConnection&&) noexcept;

  // Gives up at once when `stop` is requested. Error("data.object", user): libcurl is too old to sign.
  HttpGot get(const HttpGet& request, const std::stop_token& stop = {});

 private:
  struct Easy;
  std::unique_ptr<Easy> easy_;
};

}  // namespace ms::data
