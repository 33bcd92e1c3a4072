"""Thresholds of the machine: each size from which another way of computing is taken, with its measurement or reason.

Comes in: nothing. Goes out: constants, which passes and kernels read when they decide, so that each decision stands in
one place. Times are of one core of a Xeon with AVX-512; `benchmarks/thresholds.py` takes those again that name a table
of it. Constants that are no decision (layouts of records, timeouts, limits of formats) stay where they are used, as do
those of a single op.
"""

from __future__ import annotations

from typing import Final

# -- programs over small values (runtime.small) ------------------------------------------------------------------------

# Equations from which a region is compiled. A call of NumPy takes 0.25 us, a small program 0.65 us however many
# equations it has, but some 5 ms to compile: at 8 equations it saves 1.5 us of 2.2 a call (small_ops).
SMALL_FEWEST: Final = 8
# The same in the body of a loop, which runs often: 4 equations take twice the time of a small program (small_ops).
SMALL_FEWEST_IN_LOOPS: Final = 4
# Additions in elementwise ops that count as another call of NumPy: sin of 4096 float32 takes NumPy 19 us, by way of float64, and a small
# program 2; exp takes 1.7 and 1.2.
SMALL_WORK: Final = 1 << 14
# Nanoseconds of a call of NumPy: what `Emit.spared` is counted in. sin of 512 float32 takes 3.4 us by NumPy, 0.8 compiled.
SMALL_CALL: Final = 250
# Equations of a region: a bound of what LLVM holds at once; its time grows with the text, 0.03 ms an equation.
SMALL_REGION: Final = 300
# Calls of a single op's kernel before it is compiled: a draw of random numbers takes 20 us by NumPy, 4 us compiled, which takes 3 ms.
SMALL_PATIENCE: Final = 16
# Elements of a value on all devices. Fused loops begin there, and take as long: 58 us for ten equations of 16384
# elements, where NumPy took 93 us for 4096 and a small program 15; beyond, threads share fused loops, and small
# programs have one (small_elements).
SMALL_LARGEST: Final = 1 << 14
# The same in loops that run as one small program: as many as fused loops leave to one thread. A step saves a call of each kernel: 100
# steps of products, tanh and a choice of 16384 elements take 1.9 ms so, 3.3 by a kernel each; of 32768, 3.9 and 5.1.
SMALL_LARGEST_IN_LOOPS: Final = 1 << 15
# The same in loops with so few additions in a round that a second thread would gain less than a kernel's call takes, of what a processor's
# own cache holds: a round of Floyd and Warshall's of 200 x 200 takes 3.5 us so, 17 by kernels; one of 256 x 256 that divides rows by
# their norms 22 and 30 (AVX2).
SMALL_LARGEST_IN_LIGHT_LOOPS: Final = 1 << 16
SMALL_LIGHT: Final = 1 << 19
# Elements of a running reduction along rows, which goes from column to column: of 16384 it takes 45 us, the op's own kernel 34.
SMALL_RUNNING: Final = 1 << 13
# Rows times the square of their length, up to which insertion sorts them in less time than NumPy's functions with their calls; of several
# operands these take longer: f32[8] sorted in a loop takes 0.3 us so, 22 by NumPy; f32[16, 64] 44 and 34, its order 41 and 188.
SMALL_INSERTIONS: Final = 1 << 15
SMALL_INSERTIONS_TOGETHER: Final = 1 << 18
# Multiplications of a decomposition that LAPACK computes, and of a stack of them, which no signal interrupts: a call of its own costs
# little beside larger ones, for which OpenBLAS wakes threads. QR factors of 8 matrices of 16 x 16 take 60 us so, 104 by a call for each.
SMALL_DECOMPOSED: Final = 1 << 14
SMALL_DECOMPOSED_TOGETHER: Final = 1 << 17
# Elements of a Fourier transform, beyond which threads may share it.
SMALL_TRANSFORM: Final = 1 << 12
# Elements of an operand that is read as a whole, in a product: up to here a matrix times a vector takes as long as the
# library's, 59 us and 52 for 512 rows; of 1024, 1.8 ms and 0.9.
SMALL_LARGEST_READ: Final = 1 << 18
# Multiplications of a product: as many as the library computes with one thread. A step of f32[64, 256] times [256, 256] and tanh takes
# 52 us so; by the library 75, or 64 of two threads (small_products). Where columns do not fill vectors, both take as long.
SMALL_PRODUCT: Final = 1 << 22
# Bytes of a matrix beyond which products of a few rows read it in layers of rows: it is more than the nearest cache holds, and a strip of
# its columns is a line of each row. f32[192] times [192, 768] and back takes 21 us so, else 40; of two rows 23, else 29; of four both 40.
NEAREST_CACHE: Final = 1 << 15
# Elements of a copy whose rows are columns of its source, from which squares of vectors are transposed in registers: 512 x 512 take
# 54 us so, 111 element by element; the text of a square is as long as that of a hundred elements.
SMALL_TURNED: Final = 1 << 12
# Multiplications of triangular systems: up to here substitution takes a sixth to half of the time of LAPACK's blocks,
# whose call alone takes 4.2 us; at 2 million they meet (small_systems).
SMALL_SYSTEMS: Final = 1 << 17
# Multiplications of stacks of Cholesky and LU factors and their systems: beyond, LAPACK's blocks and several threads do
# better.
SMALL_FACTORS: Final = 1 << 18
# Elements of a value in a register: one vector of AVX-512 holds 16 of float32; wider ones are taken apart by LLVM, at a
# cost in text.
REGISTER_ELEMENTS: Final = 16
# Registers of carries that go through the rounds of a loop side by side where elements do not meet, so that additions need not wait for
# each other; half as many of one carry. 20 rounds of a polynomial of four steps on 2**20 elements take 3.6 ms with one register, 2.3
# from memory, 1.8 with eight; 50 of three carries of 1024 24 us with one of each, 13 from memory, 12 with four (AVX2).
SMALL_ABREAST: Final = 16
# Elementwise equations of one loop: with more, values no longer fit into registers.
SMALL_LOOP_EQUATIONS: Final = 64
# Cost, in additions, up to which elementwise equations run in the loop of a reduction that takes them in: x + 1 and its sum over rows of
# 100 take 6.9 us so, 7.5 in two loops; exp and its sum over rows of 96 14.7 and 13.3, since the loop over all elements has no row ends.
SMALL_GATHERED: Final = 8
# Cost, relative to an addition, from which an op that occurs three times or more becomes a function of its own, so that
# its text stands there once.
SMALL_OUTLINED: Final = 10
# Boxes of elements that move alike, of which a collective's result is put together: each is a loop of its own in the text.
SMALL_BOXES: Final = 64
# Boxes of a value that elementwise loops read where they lie, rather than from where it is put together: 100 steps that pass 64 floats on
# each of 64 devices on to the next one and multiply them take a third of the time so.
SMALL_PUT_OFF: Final = 4
# Loops over the cells of such values, each a loop of its own in the text.
SMALL_CELLS: Final = 9
# Elements of a piece of a large loop that goes through all rounds piece by piece: two of them lie in the first-level cache.
LOOP_PIECE: Final = 1 << 12
# Elements of an entry from which another dim is cut, too.
LOOP_PIECE_MOST: Final = 1 << 14
# Rounds from which pieces pay: with two rounds, 64 MB go through memory twice in less time.
LOOP_FEWEST: Final = 4
# Additions of an element in a round from which it goes round alone, until it is done, in a loop that runs small. 20 rounds of tanh of 100
# elements of 100 take 77 us so, 96 together; where elements take 1 to 39 rounds 77 and 184. Of 64 elements of 64 38 and 34, 36 and 64.
LOOP_APART: Final = 1 << 11
# Additions of a part of such a loop: some 50 us of a thread.
LOOP_PART: Final = 1 << 22
# Additions on a device from which it pays: a part takes some 10 us besides.
LOOP_LEAST: Final = 1 << 19
# Additions in all, and per element of the results, up to which devices compute what only others of them take, rather than each group of
# devices its own branch, for which blocks are cut and results put together: 2 * x on even devices and x + 1 on odd ones take 4 us together
# and 32 apart for 512 elements, 55 and 114 for 2**18; exp and tanh of these 160 both ways, sin and erf 274 and 209. A layer of 64 on 16
# rows, which 8 of 64 devices take in each of 71 rounds: 16.5 ms all rounds together, 10.1 apart; of 8 devices 0.63 ms together, 1.2 apart.
CHOICE: Final = 1 << 20
CHOICE_ELEMENT: Final = 8
# Bytes of scratch memory on the stack, of which a thread of Python may have little; more comes with the call.
SMALL_STACK: Final = 1 << 15
# Additions, tens of microseconds, from which other threads of Python may run meanwhile: to hand over their lock takes
# time, too.
SMALL_UNLOCKED: Final = 1e5
# Additions of a part of a small program on several devices, some 0.8 ms of a thread, which takes 25 us to wake; and the most parts: 50
# steps of f32[64, 256] times [256, 256] and tanh, split over 8 devices, take 2.5 ms in one part, 1.5 in two, 1.6 in four.
SMALL_PART: Final = 1 << 26
SMALL_PARTS: Final = 16
# Additions between two looks at signals: a millisecond, so that Ctrl-C is felt at once and the looks are not.
POLL_EVERY: Final = 1 << 22
# Additions of a loop that looks at signals at all: shorter ones end within tens of milliseconds.
POLL_FROM: Final = 1 << 26

# -- machine code ------------------------------------------------------------------------------------------------------

# Nanoseconds that code which LLVM makes fast (`machine.llvm`) takes longer: for an addition of a group in one loop over memory (sin of
# 2**18 elements 80 us, 3 * x + x * x of 2**22 nothing that can be measured), of a small program (50 steps of an RNN of 16 x 64 0.4 ms),
# for an element that a loop only moves, for one that it visits otherwise (the 100 greatest of 2**18 elements 0.8 ms, Cholesky factors of
# 1000 matrices of 8 x 8 0.2 ms, running sums nothing), and for a multiplication of a product (f32[512, 256] times [256, 256] 4 ms).
DRAFT_FUSED: Final = 0.015
DRAFT_SMALL: Final = 0.06
DRAFT_MOVED: Final = 0.3
DRAFT_VISITED: Final = 3.0
DRAFT_PRODUCT: Final = 0.15

# -- groups in one loop over memory (runtime.fused) --------------------------------------------------------------------

# Parts of a sum of pads, each of which takes a call or two; with more, the pads are made.
PAD_CELLS: Final = 16
# Elements of a dim that are values of their own where slices of them are read apart (points, pixels, quaternions): what multiplies the
# columns of x - exp(x) of [2**20, 3] takes 0.6 ms so, else 1.4. Of 8 it gains as much, and its text takes three times as long to compile.
APART_MOST: Final = 4
# Elements on all devices from which a fused loop pays: at 4096, three equations take NumPy 3.6 us and a loop 4.6; at
# 16384, 9.6 and 5.7 (fused_elements).
FUSED_FEWEST: Final = 1 << 14
# Elements of a row that a loop reads at a position even where nothing is computed: 200,000 rows of 2 take 117 us so, 170 by the kernel of
# rows; 50,000 of 8 both 64.
READ_ROW: Final = 4
# Equations of a group: a longer one is cut where few values cross, up to as many as `FUSED_CUT_VALUES`, since processors do not look far
# enough ahead to begin the next vector in a long chain: 250 additions and multiplications of one value after the other take 1.7 ms so,
# 2.8 together.
FUSED_GROUP: Final = 96
FUSED_CUT_VALUES: Final = 6
# The same where more cross, which all go through memory: 40 products and differences of 40 values of 2**18 elements, four times over, take
# 72 ms in pieces of 96, and 2 in one of 400.
FUSED_GROUP_MOST: Final = 512
# Elements that a thread takes at a time: 64 KiB of float32, which its second-level cache holds with room for others.
FUSED_CHUNK: Final = 1 << 14
# Elements from which a second thread pays in groups with reductions: a sum takes 20 us then, a softmax 70; to wake a thread takes 30.
FUSED_THREADED: Final = 1 << 17
# In elementwise groups: elements times their cost, in additions.
FUSED_COST_THREADED: Final = 1 << 18
# Or bytes that such a group reads and writes, as more than the second-level cache has time for: x - y of 2**17 elements takes 46 us by one
# thread, 26 by two; differences of the rows of 512 x 512 77 and 36.
FUSED_BYTES_THREADED: Final = 3 << 19
# Bytes of a row that pass after pass finds in the second-level cache; longer rows go through one pass after the other in pieces.
FUSED_CACHED: Final = 1 << 20
# Elements of a piece of a long row. Of the shapes alone, so that sums do not depend on the number of threads.
FUSED_PIECE: Final = 1 << 16
# Vectors side by side where each lane has a result of its own: whole cache lines for all types, and additions that need not wait.
FUSED_STRIPS: Final = 4
# Vectors of a row below which lanes are rows, though their elements are then read one by one: maxima of 40,000 rows of 10 take 0.10 ms
# and not 0.29, sums 0.14 and 0.22, softmax 0.8 and 1.7; of rows of 16 sums take as long either way. Positions take longer to merge.
FUSED_SHORT: Final = 2
FUSED_SHORT_POSITIONS: Final = 8
# Registers of a vector that has several short rows, where rows do not fill registers: 2**19 pixels of 3 colours, less a mean and over a
# deviation per colour, take 0.25 ms so, and 0.8 by vectors as short as rows; tanh of rows of 5 times a factor per row 0.17 and 0.67 (AVX2).
FUSED_ROWS: Final = 8
# Elements of which vectors meet one, up to which they are taken from dense vectors and not one by one: lengths of 100,000 vectors of 3
# coordinates take 38 us so, and 58; squares of distances along 8 coordinates as long either way (AVX-512 of an AMD EPYC).
SPACED_MOST: Final = 4
# Cost, in additions, from which a value is kept for the next pass rather than computed again: it is written and read, too.
FUSED_SAVED: Final = 8
# Operands and results of a group with reductions whose vectors fill two registers: logsumexp of rows of 1024 takes 31 cycles for 16
# elements so, and 41 register by register, which reads each constant again (AVX2); more values would not find registers.
FUSED_PAIRED: Final = 4
# Cost, in additions, of an element that is read at a position.
FUSED_READ: Final = 8
# Pieces of a joined value that loops read where they lie: each is one more place to choose among per row. A roll has two.
FUSED_JOINED: Final = 4
# Elements of a window that a loop combines in registers: sums of 5 in rows of 4096 take 135 us so, 302 by a call per element; sums of 16
# take 471 us, and 297 by runs of 1, 2, 4, 8.
FUSED_WINDOW: Final = 9
# Vectors of a row with sections, beside those of a row without: up to here reading pieces where they lie was faster than joining them
# first, also for rows of 8 elements made of 3 and 5 (176 us and 346 for 32768 rows).
FUSED_SECTIONS: Final = 2
# Elements from which rows of a pad are read where they lie: 8 images of 64 x 64 with 8 channels, padded on all sides, take 154 us if they
# are padded first, and 456 us so.
FUSED_PADDED: Final = 64

# -- products (runtime.products) ---------------------------------------------------------------------------------------

# Work is counted in multiplications of real numbers.

# Up to here NumPy's library computes a product in the calling thread, and its call costs 2 us less; of matrices of 128
# rows it takes 52 us, threads of its own included, and ours 27 (numpy_products).
PRODUCT_NUMPYS: Final = 1 << 18
# Matrices of a stack from which each has a lane of a register to itself, and their most rows and columns: 256 products of 3 x 3 take
# NumPy 16 us, and 4 so; 20,000 1.1 ms and 0.04. Of 8 x 8 NumPy takes 2 to 3 times as long, of larger ones the text is long.
STACKED_FEWEST: Final = 1 << 8
STACKED_LARGEST: Final = 8
# Columns from which rows in registers are faster than matrices in lanes (4 x 4: 10 ns a product and 17; 8 x 8: 26 and 105), and rows and
# columns up to which they are faster than the library (16 x 16: 96 ns and 272; 32 x 32: 1.1 us and 1.5), whose calls take 100 ns.
STACKED_ROWS: Final = 4
STACKED_MOST: Final = 32
# Elements of a row from which rows times a vector are added up side by side (16 x 16: 18 ns a product, NumPy's calls 66; 8 x 8: 9 and 18).
STACKED_LINES: Final = 8
# The same for a matrix times a vector: 1.1 us and 2.9 for 96 rows (numpy_lines).
LINE_NUMPYS: Final = 9216
# From here a second thread pays if it is awake, as it is in loops: f32[64, 256] times [256, 256] takes 60 us by one, 33 by two.
PRODUCT_SHARED: Final = 1 << 22
# From here it pays to wake one.
PRODUCT_ROUSES: Final = 1 << 24
# The least that a task of its own should have.
PRODUCT_TASK: Final = 1 << 21
# A thread's share of work that takes milliseconds: two tasks for each thread then even out what else the processors do.
PRODUCT_LONG: Final = 1 << 27
# From here a second thread pays for a matrix times a vector, where memory sets the pace.
LINE_SHARED: Final = 1 << 20
# Rows and columns below which products are not cut if there are other ways, and below which they never are.
PRODUCT_TILE: Final = 128
PRODUCT_LEAST_TILE: Final = 64
# Tasks from which Python would be felt between them: a list of more is worked through by machine code. Five products of
# 66 rows take 20 us so, 29 by Python; of fewer tasks the code would save less than it takes to load.
PRODUCT_LISTED: Final = 4
# Dims that do not merge are looped over if each product keeps this many rows, else they are copied.
PRODUCT_LOOPED_ROWS: Final = 64
# Multiplications from which tile registers pay, for which the right operand is laid out anew: of bfloat16 matrices of 128
# rows they take 9 us, the product of operands converted to float32 26; of 64 rows both take 5.
TILES_FROM: Final = 1 << 21
# From here it pays to wake a second thread for them.
TILES_ROUSE: Final = 1 << 26
# The depth up to which a product is computed by our own strips, which pack nothing: of depth 128 they take 68 us, where
# the library takes 76; from 512 on as long (shallow_products).
SHALLOW_DEEPEST: Final = 512
# The same where the result is not in the cache, and where the left operand lies transposed, so that its elements are a
# line apart from one step of the depth to the next: there the library takes 1.2 times as long as ours at depth 32, 1.06
# at 128, 0.6 at 512.
SHALLOW_DEEPEST_COLD: Final = 256
SHALLOW_DEEPEST_TURNED: Final = 128
# Elements from row to row of a result that is not in the cache: beyond, whole rows are better written at once.
SHALLOW_LONGEST_COLD: Final = 256
# Multiplications up to which the library does without laying out operands, too.
SHALLOW_COLD_FROM: Final = 1 << 20
# The same for few columns, of which libraries fill vectors in part: 10,000 rows of 64 times 8 columns take 120 us so, 212 by the library
# (AVX-512 of an AMD EPYC).
SHALLOW_NARROW_FROM: Final = 1 << 19
# Multiplications from which no draft of their function pays (DRAFT_PRODUCT). It takes LLVM 13 ms, which begin ahead of the first call.
SHALLOW_NO_DRAFT: Final = 3 << 23
# Bytes of the left operand that pass by a strip before the next one.
SHALLOW_BLOCK: Final = 1 << 18
# Rows up to which a product with a large matrix is computed by tiles that lay out little of it: of 2048 rows and columns, 16 rows take
# 1.3 ms of one processor so and 2.5 by the library, 64 rows 3.6 and 5.1.
SKINNY_MOST: Final = 64
# The least depth, and multiplications: of 2 rows and a matrix of 512 rows and columns, half as many, both take as long.
SKINNY_DEPTH: Final = 64
SKINNY_FROM: Final = 1 << 20
# Multiplications from which no draft of their function pays (DRAFT_PRODUCT). It takes LLVM 40 ms, which begin ahead of the first call.
SKINNY_NO_DRAFT: Final = 1 << 27
# Bytes of the result that a task computes: its sums are read and written for each piece of the depth, and stay in the second-level cache.
SKINNY_RESULT: Final = 3 << 18
# Rows up to which a product reads a large matrix in layers that are laid out nowhere, and its least columns: of 1024 rows and columns, 2
# rows take 78 us of one processor so, 129 by the tiles above and 400 by the library; 8 rows 188, 243 and 540; 16 rows 461, 420 and 630.
LAYERS_MOST: Final = 12
LAYERS_LEAST: Final = 64
# Bytes of the rows of a result that stay in the nearest cache while layers pass by.
LAYERS_BLOCK: Final = 1 << 14
# Rows (columns) up to which a matrix that lies transposed (plain) goes past them line by line: of 1024 lines of 1024, 2 take 62 us of one
# processor so and 670 by the library, 16 take 313 and 905.
LINES_MOST: Final = 16
# The least depth: of 10,000 lines of 64 elements 8 columns take 225 us so, 138 by strips (SHALLOW_*); of 100 elements, 3 columns 116, 265
# by the library. A matrix times a vector pays up to a depth, beyond which the library is as fast: 100,000 lines of 8 take 118 us and 270.
LINES_DEPTH: Final = 96
LINES_SHORT: Final = 16
# Lines of the large matrix from which it pays to lay out the few if their elements lie apart.
LINES_LAID_OUT: Final = 64
# Multiplications from which no draft of such a function pays (DRAFT_PRODUCT).
FEW_NO_DRAFT: Final = 1 << 26
# Bytes of a panel at least, whatever the cache.
PANEL_LEAST: Final = 1 << 18
# Columns of a panel that a product computes well, and its least rows, whatever their length.
PANEL_COLUMNS: Final = 512
PANEL_LEAST_ROWS: Final = 64
# Panels that there should be, for as many threads.
PANEL_SHARES: Final = 16
# Products of a call: beyond, each is so small that its list would be felt.
PANEL_MATRICES: Final = 1 << 13
# Multiplications of each product of a stack from which panels pay: a kernel for stacks has smaller ones in one loop. Ring attention of
# f32[4, 1024, 64] over 64 devices, each of which multiplies 16 x 64 x 16, takes 34 ms so, 39 by panels; its gradient 85 and 100.
PANELS_LEAST_PRODUCT: Final = 3 << 13
# Bytes of a product's result from which panels pay: a smaller one stays in the cache until the group after it reads it.
PANELS_FROM: Final = 1 << 20
# What is laid out anew for a panel, in elements per element of the panel: where it is more, a product loses more in
# panels than it wins.
PANELS_DEEPEST: Final = 0.6
# The same where a product follows as well, which wins, too.
PANELS_DEEPEST_FOLLOWED: Final = 1.5
# Panels' sizes: a product whose least panel is larger is left alone, since a panel has to stay in the cache.
PANELS_HIGHEST: Final = 4
# Elements on all devices from which products of 16-bit floats are spelled out: a result of that many fills
# `PANELS_FROM` in float32.
WIDE_PRODUCTS_FROM: Final = PANELS_FROM // 4

# -- memory (runtime.memory, runtime.copies) ---------------------------------------------------------------------------

# Bytes from which arrays come from the pool: memory that has been touched before costs no page faults. Smaller ones are left to NumPy,
# whose arrays cost 2 us less.
POOLED_FROM: Final = 1 << 18
# The same for results of small programs, which have no time to spare for page faults.
SMALL_POOLED_FROM: Final = 1 << 16
# Bytes of a result that repeats elements up to which it gets memory of its own: a view would be copied by each small program that reads
# it, which takes 1 us of a loop's 2.6 from 64 ones; a copy of 16 KB takes 0.5.
STRETCHED_MOST: Final = 1 << 14
# Bytes that C's allocator keeps of what arrays have let go that are not from the pool; by itself it gives 128 KB and more back to the
# system: a training step with 200 arrays of f32[1024, 32] took 9.7 ms then, with 1950 page faults, and takes 5.7.
KEPT_FREED: Final = 1 << 26
# Bytes from which it maps pages for an array alone, and unmaps them after it: the most that it would come to by itself. NumPy's own
# temporaries are not from the pool: a stack of Cholesky factors took 2.5 ms with them mapped, and takes 1.0.
MAPPED_FROM: Final = 1 << 25
# Bytes from which a second thread pays for a copy, and bytes that a thread copies at a time.
COPY_SHARED: Final = 1 << 22
COPY_PART: Final = 1 << 20
# Bytes of a row below which a loop of ours copies rows, which NumPy takes 8 ns to begin; of a copy from which that pays; of a piece of it.
# 1 MB in rows of 3 elements takes 0.09 ms so, and 0.64 by NumPy, in rows of 16 0.05 and 0.14, in rows of 48 as long (AVX2).
COPY_ROW: Final = 1 << 8
COPY_ROWS_FROM: Final = 1 << 15
# Dense rows from which that pays: 512 of 64 bytes take NumPy 3.1 us and a call of ours 4.1, 1024 5.9 and 4.6 (AVX-512 of an AMD EPYC).
COPY_FEWEST_ROWS: Final = 768
# Bytes that NumPy copies between blocks that lie so before code is made for it, which saves half a millisecond a megabyte, but takes 5 to
# 30 ms to make.
COPY_CODE_FROM: Final = 1 << 24
COPY_PIECE: Final = 1 << 16
# Bytes of a result from which loops and copies write past the cache: who reads it next finds little of it there. A copy of 64 MB takes
# 6.9 ms of one processor so, 8.5 by NumPy, which reads what it writes.
STREAMED_FROM: Final = 1 << 25
# Bytes of memory beside results that a loop keeps for its next call.
KEPT_SCRATCH: Final = 1 << 18
# Without a compiler, elements of a tile that NumPy's functions go through one after the other while it is in the cache.
TILED_ELEMENTS: Final = 1 << 16
# Elements from which a second thread pays for tiles.
TILED_SHARED: Final = 1 << 18

# -- moves between layouts (passes.reshard) ----------------------------------------------------------------------------

# Layouts looked at before settling for gather-then-slice: with eight axes a layout takes 1.6 ms, the whole search 7 s.
RESHARD_LAYOUTS: Final = 4000
# Axes on one dim up to which every order is tried: 24 orders of four.
RESHARD_ORDERED_AXES: Final = 4
# Bytes sent by a device from which other splits of an op are looked at; below, a message costs as much whatever it holds.
RESHARD_WORTH: Final = 1 << 10
# Bytes of results, and multiplications of products, that a device makes while it sends a byte: a TPU v5p has 2.8 TB/s of memory and 230 T
# multiplications a second beside links of about 0.18 TB/s. They compare one program on two grids.
MADE_PER_SENT: Final = 16
MULTIPLIED_PER_SENT: Final = 1024
# Devices of a ring of products and transfers, whose steps are equations each.
RING_DEVICES: Final = 32
# Bytes of memory of a device that are worth a ring of products and transfers, which takes longer than a gather and one product: 39 ms of
# processor time and 34 for 2048 rows and columns on four processes, 12 and 9 for 512 rows.
RING_BYTES: Final = 1 << 20
# Additions and multiplications of the product for each of these bytes: then its parts, which write the result one by one, are
# products of 64 rows or more beside a message each.
RING_OPERATIONS_PER_BYTE: Final = 32
# Bytes on a device of a loop's exchanged constants, up to which they are exchanged once, before the loop: they then stay in
# memory during the loop.
HOISTED_BYTES: Final = 1 << 26
# Bytes up to which a sum over devices that a loop stacks is taken behind the loop, for all rounds at once: latencies count more than that
# it could run beside the loop. The limit of XLA's compilers (`xla_while_loop_all_reduce_dus_code_motion_max_size_bytes`).
STACKED_SUM_BYTES: Final = 10_240
# Rounds that a loop is taken to run if only the run decides.
LOOP_ROUNDS: Final = 16
# How many times as much the second best way to partition an equation may send for the whole program to be tried with it too: of a sort
# along a split dim of 4,096 float32 on 8 devices, 13 KB of elements and samples, and a gather, 14 KB, after which later equations may
# find the whole row. Partitioning takes up to twice as long then.
CLOSE_CALL: Final = 1.5
# How many times fewer bytes another split must move: XLA's partitioner and ours then choose alike where little is at stake.
RESHARD_GAIN: Final = 2
# The same for updates at places, which are few operations: a gather of updates sends half of what a sum of as large results does, and the
# places besides.
UPDATES_GAIN: Final = 1.5
# The same for gathers of two operands that are both split along what is summed: users split them so for the sum.
BOTH_SIDES_GAIN: Final = 4
# Additions and multiplications that a device does rather than send a byte, where it may compute what others compute as well instead of
# summing parts with them: an accelerator does 2,000 of them in the time of a byte (TPU v5e: 197 TFLOP/s, 90 GB/s along an axis; H100: 989
# and 450); one process computes for all its devices at once. Between processes on CPUs 50 GFLOP/s stand beside 3 to 5 GB/s.
OPERATIONS_PER_BYTE: Final = 2048
OPERATIONS_PER_BYTE_ACROSS: Final = 16

# -- stacks of small matrices (runtime.loops.stacks) -------------------------------------------------------------------

# Elements that are read and written, times the work on each, from which a second thread pays.
STACKS_SHARED: Final = 1 << 17

# -- programs rewritten (passes, transforms) ---------------------------------------------------------------------------

# Steps from which a scan is taken apart.
FISSION_SHORTEST: Final = 4
# Elements of a value for all steps together, at most.
FISSION_LARGEST: Final = 1 << 20
# Elements of a step from which it costs more to keep a value for all steps than to compute it again.
FISSION_SPREAD: Final = 1 << 10
# Parts of a view; one with more is laid out at once.
VIEW_PARTS: Final = 16
# Equations that are repeated for a value in another layout; with more, the value is moved.
REMADE_EQUATIONS: Final = 32
