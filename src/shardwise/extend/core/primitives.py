"""`shardwise.extend.core.primitives`: the library's ops as Primitives: ``sin_p`` is that of ``sin``."""

from typing import TYPE_CHECKING, Any

from shardwise.base.gone import no_attribute as _no_attribute
from shardwise.base.listing import listing as _listing
from shardwise.transforms.programs.primitives import Primitive, named_primitive

# Calls of functions that are neither compiled nor differentiated by rules of their own: interpreters compare with them, and
# programs of ours have no equation of theirs.
call_p, closed_call_p = Primitive("call"), Primitive("closed_call")
call_p.multiple_results = closed_call_p.multiple_results = True

# What `__getattr__` makes from ops, for checkers and `dir`.
abs_p: Primitive
acos_p: Primitive
acosh_p: Primitive
add_jaxvals_p: Primitive
add_p: Primitive
all_gather_p: Primitive
all_to_all_p: Primitive
and_p: Primitive
argmax_p: Primitive
argmin_p: Primitive
asin_p: Primitive
asinh_p: Primitive
atan2_p: Primitive
atan_p: Primitive
atanh_p: Primitive
axis_index_p: Primitive
bessel_i0e_p: Primitive
bessel_i1e_p: Primitive
bitcast_convert_type_p: Primitive
broadcast_in_dim_p: Primitive
cbrt_p: Primitive
ceil_p: Primitive
cholesky_p: Primitive
clamp_p: Primitive
clz_p: Primitive
complex_p: Primitive
concatenate_p: Primitive
cond_p: Primitive
conj_p: Primitive
conv_general_dilated_p: Primitive
convert_element_type_p: Primitive
copy_p: Primitive
cos_p: Primitive
cosh_p: Primitive
cumlogsumexp_p: Primitive
cummax_p: Primitive
cummin_p: Primitive
cumprod_p: Primitive
cumsum_p: Primitive
custom_jvp_call_p: Primitive
custom_lin_p: Primitive
custom_vjp_call_p: Primitive
device_put_p: Primitive
digamma_p: Primitive
div_p: Primitive
dot_general_p: Primitive
dynamic_slice_p: Primitive
dynamic_update_slice_p: Primitive
eig_p: Primitive
eigh_p: Primitive
eq_p: Primitive
erf_inv_p: Primitive
erf_p: Primitive
erfc_p: Primitive
exp2_p: Primitive
exp_p: Primitive
expm1_p: Primitive
fft_p: Primitive
floor_p: Primitive
gather_p: Primitive
ge_p: Primitive
gt_p: Primitive
hessenberg_p: Primitive
householder_product_p: Primitive
igamma_grad_a_p: Primitive
igamma_p: Primitive
igammac_p: Primitive
imag_p: Primitive
integer_pow_p: Primitive
iota_p: Primitive
is_finite_p: Primitive
jit_p: Primitive
le_p: Primitive
lgamma_p: Primitive
linear_solve_p: Primitive
log1p_p: Primitive
log_p: Primitive
logistic_p: Primitive
lt_p: Primitive
lu_p: Primitive
max_p: Primitive
min_p: Primitive
mul_p: Primitive
name_p: Primitive
ne_p: Primitive
neg_p: Primitive
nextafter_p: Primitive
not_p: Primitive
or_p: Primitive
pad_p: Primitive
pmax_p: Primitive
pmin_p: Primitive
polygamma_p: Primitive
population_count_p: Primitive
pow_p: Primitive
ppermute_p: Primitive
psum_p: Primitive
qr_p: Primitive
random_bits_p: Primitive
random_fold_in_p: Primitive
random_seed_p: Primitive
random_split_p: Primitive
real_p: Primitive
reduce_and_p: Primitive
reduce_max_p: Primitive
reduce_min_p: Primitive
reduce_or_p: Primitive
reduce_precision_p: Primitive
reduce_prod_p: Primitive
reduce_sum_p: Primitive
reduce_window_max_p: Primitive
reduce_window_min_p: Primitive
reduce_window_sum_p: Primitive
reduce_xor_p: Primitive
regularized_incomplete_beta_p: Primitive
rem_p: Primitive
remat_p: Primitive
reshape_p: Primitive
rev_p: Primitive
rng_bit_generator_p: Primitive
round_p: Primitive
rsqrt_p: Primitive
scan_p: Primitive
scatter_add_p: Primitive
scatter_max_p: Primitive
scatter_min_p: Primitive
scatter_mul_p: Primitive
scatter_p: Primitive
schur_p: Primitive
select_n_p: Primitive
sharding_constraint_p: Primitive
shift_left_p: Primitive
shift_right_arithmetic_p: Primitive
shift_right_logical_p: Primitive
sign_p: Primitive
sin_p: Primitive
sinh_p: Primitive
slice_p: Primitive
sort_p: Primitive
sqrt_p: Primitive
square_p: Primitive
squeeze_p: Primitive
stop_gradient_p: Primitive
sub_p: Primitive
svd_p: Primitive
tan_p: Primitive
tanh_p: Primitive
top_k_p: Primitive
transpose_p: Primitive
triangular_solve_p: Primitive
tridiagonal_p: Primitive
tridiagonal_solve_p: Primitive
while_p: Primitive
xor_p: Primitive
zeta_p: Primitive

if not TYPE_CHECKING:  # checkers know the names; others are mistakes

    def __getattr__(name: str) -> Any:
        found = named_primitive(name)
        if found is None:
            raise _no_attribute(__name__, name)
        return found


__dir__ = _listing(__name__)
