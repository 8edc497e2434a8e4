#include "base/error.h"
#include "driver/credential.h"

namespace ms::driver {

std::unique_ptr<Credentials> munge_credentials(const std::string&) {
  throw user_error("driver.munge", "this build has no MUNGE, by which the driver knows its agents",
                   "install libmunge-dev and build again");
}

}  // namespace ms::driver
