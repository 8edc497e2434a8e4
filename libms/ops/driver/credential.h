// Proof of who is at the other end of a connection: a credential that only a process of the same user on this cluster
// can make, over a text that holds the other end's nonce. On a cluster that is MUNGE; tests have their own.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace ms::driver {

class Credentials {
 public:
  virtual ~Credentials() = default;
  // Throws Error("driver.munge", node) where none can be made.
  virtual std::string seal(const std::string& text) const = 0;
  // The text, if the credential is good, new, and of this user; nullopt, with `why`, else. Never throws: it may be
  // anybody's.
  virtual std::optional<std::string> open(const std::string& credential, std::string& why) const = 0;
};

// `socket`: of munged; empty: its usual one. Throws Error("driver.munge", user) in a build without MUNGE.
std::unique_ptr<Credentials> munge_credentials(const std::string& socket);
// The socket in Slurm's AuthInfo ("socket=/run/munge/socket,cred_expire=5"); empty: none is named.
std::string munge_socket(std::string_view auth_info);
// The same by the text of a slurm.conf(5). What other files it includes is not read.
std::string munge_socket_in_conf(std::string_view slurm_conf);

}  // namespace ms::driver
