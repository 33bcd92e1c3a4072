"""`shardwise.extend.linear_util`: functions of flat values that carry a stack of wrappers, as JAX's older interfaces hand them around."""

from shardwise.base.listing import listing as _listing
from shardwise.base.wrapped_functions import StoreException as StoreException
from shardwise.base.wrapped_functions import WrappedFun as WrappedFun
from shardwise.base.wrapped_functions import cache as cache
from shardwise.base.wrapped_functions import merge_linear_aux as merge_linear_aux
from shardwise.base.wrapped_functions import transformation as transformation
from shardwise.base.wrapped_functions import transformation2 as transformation2
from shardwise.base.wrapped_functions import transformation_with_aux as transformation_with_aux
from shardwise.base.wrapped_functions import transformation_with_aux2 as transformation_with_aux2
from shardwise.base.wrapped_functions import wrap_init as wrap_init

__dir__ = _listing(__name__)
