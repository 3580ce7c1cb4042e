"""The twin of ``examples/gan.py``: the losses of both networks, in turn."""

from __future__ import annotations

import gan
import torch
import torch.nn.functional as F
import training
from torch import Tensor, nn

from tests.examples.twins import copy_parameters
from tstatic import static

SEED, BATCH, RATE, STEPS = 9, 8, 1e-4, 660


class Generator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(gan.NOISE + 10, 64 * 2 * 2, bias=False)
        self.rest = nn.Sequential(
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.ConvTranspose2d(64, 32, 4, 2, padding=1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.ConvTranspose2d(32, 1, 4, 2, padding=1),
            nn.Sigmoid(),
        )

    def forward(self, noise: Tensor, label: Tensor) -> Tensor:
        x = self.fc(torch.cat([noise, F.one_hot(label, 10).float()], 1))
        return self.rest(x.reshape(-1, 64, 2, 2))


class Discriminator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.LeakyReLU(0.2), nn.Conv2d(32, 64, 4, 2, padding=1), nn.LeakyReLU(0.2)
        )
        self.real = nn.Linear(64 * 4 * 4, 10)
        self.digit = nn.Linear(64 * 4 * 4, 10)

    def forward(self, image: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        x = self.body(image).flatten(1)
        return self.real(x).gather(1, label[:, None]), self.digit(x)


def against(logit: Tensor, target: float) -> Tensor:
    return F.binary_cross_entropy_with_logits(logit, torch.full_like(logit, target))


def losses(steps: int) -> tuple[list[float], list[float]]:
    train_x, train_y, _, _ = gan.digits()
    model = gan.build(STEPS, rate=RATE)
    exe = static.Executor("cpu")
    exe.run(model.startup)
    generator, discriminator = Generator(), Discriminator()
    # The generator's program lists its parameters first, then the discriminator's.
    copy_parameters(model.of_generator, nn.ModuleList([generator, discriminator]))
    optimizers = [torch.optim.Adam(net.parameters(), RATE, betas=(0.5, 0.999)) for net in (discriminator, generator)]
    schedulers = [torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, STEPS) for optimizer in optimizers]
    ours, theirs = [], []
    for number in range(steps):
        rows, rng = training.shuffled(len(train_x), BATCH, number, 1)
        noise = rng.standard_normal((2, BATCH, gan.NOISE), dtype="float32")
        feed = {"noise": noise[0], "image": train_x[rows], "label": train_y[rows]}
        ours.append(float(exe.run(model.of_discriminator, feed=feed, fetch_list=[model.d_loss])[0]))
        feed = {"noise": noise[1], "label": train_y[rows]}
        ours.append(float(exe.run(model.of_generator, feed=feed, fetch_list=[model.g_loss])[0]))
        model.scheduler.step()

        image, label = torch.from_numpy(train_x[rows]), torch.from_numpy(train_y[rows, 0])
        real, digit = discriminator(image, label)
        fake, _ = discriminator(generator(torch.from_numpy(noise[0]), label).detach(), label)
        d_loss = against(real, 0.9) + against(fake, 0.0) + F.cross_entropy(digit, label)
        optimizers[0].zero_grad()
        d_loss.backward()
        optimizers[0].step()
        fake, digit = discriminator(generator(torch.from_numpy(noise[1]), label), label)
        g_loss = against(fake, 1.0) + F.cross_entropy(digit, label)
        optimizers[1].zero_grad()
        g_loss.backward()
        optimizers[1].step()
        theirs += [d_loss.item(), g_loss.item()]
        for scheduler in schedulers:
            scheduler.step()
    return ours, theirs
