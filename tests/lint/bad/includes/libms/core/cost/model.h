#include "base/low.h"
#include "cost/first/early.h"
